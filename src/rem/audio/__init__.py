"""Transcription of recordings by a service with the OpenAI protocol or by a local model."""
