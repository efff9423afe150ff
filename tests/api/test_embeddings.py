"""`/v1/embeddings` works with OpenAI's own client."""

from __future__ import annotations

import numpy as np
import pytest
from openai import BadRequestError, NotFoundError, UnprocessableEntityError

from tests.api.chat.conftest import Chat, chat, chat_server

__all__ = ["chat", "chat_server"]


def test_similar_texts_have_similar_vectors(chat: Chat) -> None:
    answer = chat.client().embeddings.create(model="rem", input=["a small boat", "a little ship", "tax return"])
    boat, ship, tax = (np.array(item.embedding) for item in answer.data)
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert boat @ ship > boat @ tax + 0.2
    assert abs(np.linalg.norm(boat) - 1) < 1e-3
    assert answer.usage.prompt_tokens > 5


def test_numbers_and_base64_are_the_same_vector(chat: Chat) -> None:
    client = chat.client()
    # OpenAI's client asks for base64 unless told otherwise, and decodes it.
    encoded = client.embeddings.create(model="rem", input="a small boat").data[0].embedding
    numbers = client.embeddings.create(model="rem", input="a small boat", encoding_format="float").data[0].embedding
    assert np.allclose(encoded, numbers)


def test_many_texts_keep_their_order(chat: Chat) -> None:
    texts = [f"text number {number}" for number in range(70)]
    client = chat.client()
    together = client.embeddings.create(model="rem", input=texts).data
    alone = client.embeddings.create(model="rem", input=texts[69]).data[0].embedding
    assert len(together) == 70
    assert np.dot(together[69].embedding, alone) > 0.999


def test_unknown_model_dimensions_and_input_are_refused(chat: Chat) -> None:
    client = chat.client()
    with pytest.raises(NotFoundError, match="no embedding model 'nonsense'"):
        client.embeddings.create(model="nonsense", input="x")
    with pytest.raises(BadRequestError, match="dimensions: the vectors of"):
        client.embeddings.create(model="rem", input="x", dimensions=7)
    with pytest.raises(BadRequestError, match=r"blank|empty"):
        client.embeddings.create(model="rem", input=" ")
    with pytest.raises(UnprocessableEntityError):
        client.embeddings.create(model="rem", input=[[1, 2, 3]])
    with pytest.raises(UnprocessableEntityError, match="256"):
        client.embeddings.create(model="rem", input=["x"] * 257)
