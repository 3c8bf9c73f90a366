"""OpenAI's Python client, unmodified, through the gateway."""
import asyncio
import os

import openai

URL, MODEL = os.environ["BASE_URL"] + "/v1", os.environ["MODEL"]
CHAT = [{"role": "user", "content": "Say something."}]
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=60)

assert MODEL in [model.id for model in client.models.list()]

whole = client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=8)
assert whole.choices[0].message.content and whole.usage.completion_tokens == 8

stream = client.chat.completions.create(
    model=MODEL, messages=CHAT, max_tokens=8, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
assert any(chunk.choices and chunk.choices[0].finish_reason for chunk in chunks)
assert chunks[-1].usage.completion_tokens == 8

raw = client.completions.with_raw_response.create(model=MODEL, prompt="Once", max_tokens=4)
assert raw.headers["x-kvasir-endpoint"].startswith("http://")
assert raw.headers["x-request-id"]
assert raw.parse().choices[0].text

try:
    client.chat.completions.create(model="no-such-model", messages=CHAT)
    raise SystemExit("an unknown model was answered")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error.code
try:
    client.chat.completions.create(model=MODEL, messages="no list", max_tokens=-1)
    raise SystemExit("a broken request was answered")
except openai.BadRequestError:
    pass


async def many():
    """Thirty-two at once, every fourth given up after its first chunk."""
    clients = openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=60)

    async def one(number):
        messages = [{"role": "user", "content": f"Number {number}"}]
        stream = await clients.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=16, stream=True
        )
        seen = 0
        async for chunk in stream:
            seen += 1
            if number % 4 == 0:
                await stream.close()
                return 1
            last = chunk
        assert last.choices[0].finish_reason, last
        return seen

    return await asyncio.gather(*(one(number) for number in range(32)))


assert all(asyncio.run(many()))
