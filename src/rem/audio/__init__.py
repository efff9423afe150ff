"""Who writes down what is said: a service with OpenAI's protocol, or a model in this process."""
