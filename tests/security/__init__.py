"""Attacks on every interface: nobody reads or changes a memory that is not theirs."""
