"""`rem chat`: talk to an agent in the terminal, with the memory of this machine or of a server."""
