"""LangChain's OpenAI chat model, unmodified, through the gateway."""
import asyncio
import os

from langchain_openai import ChatOpenAI

chat = ChatOpenAI(
    base_url=os.environ["BASE_URL"] + "/v1", api_key="none", model=os.environ["MODEL"],
    max_tokens=8, max_retries=0, timeout=60, stream_usage=True,
)
answer = chat.invoke("Say something.")
assert answer.content and answer.usage_metadata["output_tokens"] == 8, answer
chunks = list(chat.stream([("system", "Be short."), ("human", "Say something.")]))
assert "".join(chunk.content for chunk in chunks)
answers = chat.batch([f"Number {number}" for number in range(8)])
assert all(answer.content for answer in answers)
assert asyncio.run(chat.ainvoke("Say something.")).content
