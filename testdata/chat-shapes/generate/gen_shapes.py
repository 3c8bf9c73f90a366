#!/usr/bin/env python3
"""Makes ../*.json: what vLLM 0.32.0's own request models and OnlineRenderer give for the bodies of cases.py.

usage: gen_shapes.py OUT_DIR [MODEL...]

Needs a virtual environment with vllm 0.32.0 (the CPU wheel does): nothing is served, no weights are
read. The models are those of chat-models, and the two kinds of tokenizers beside this directory. The
time strftime_now and Harmony see is frozen.
"""
import asyncio, copy, datetime, hashlib, json, os, shutil, struct, sys, tempfile
from pathlib import Path

os.environ.setdefault("VLLM_SYSTEM_START_DATE", "2025-03-09")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import cases

NOW = "2025-03-09T14:05:07"
CHAT_MODELS = ["chatml", "features-b", "glm4", "mistral-v3"]
OWN_MODELS = ["unigram", "wordpiece"]
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
          "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 4, "vocab_size": 8192,
          "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "torch_dtype": "float32"}


def freeze_time():
    import transformers.utils.chat_template_utils as ctu
    real = datetime.datetime

    class Frozen(real):
        @classmethod
        def now(cls, tz=None):
            return real.fromisoformat(NOW)
    for module in (ctu,):
        if hasattr(module, "datetime"):
            module.datetime = Frozen


def ids_of(ids):
    ids = list(ids)
    if len(ids) <= 300:
        return {"ids": ids}
    digest = hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()
    return {"ids_len": len(ids), "ids_sha256": digest, "ids_head": ids[:12], "ids_tail": ids[-12:]}


def error_of(where, error):
    text = getattr(error, "message", None) or str(error)
    return {"error": {"where": where, "type": type(error).__name__, "message": text[:240]}}


class Oracle:
    def __init__(self, directory, runner):
        from vllm.config import VllmConfig, DeviceConfig
        from vllm.config import ModelConfig
        from vllm.renderers import renderer_from_config
        from vllm.renderers.online_renderer import OnlineRenderer
        self.model_config = ModelConfig(model=str(directory), tokenizer=str(directory), runner=runner, dtype="float32", max_model_len=32768)
        config = VllmConfig(model_config=self.model_config, device_config=DeviceConfig("cpu"))
        self.renderer = renderer_from_config(config)
        self.online = OnlineRenderer(model_config=self.model_config, renderer=self.renderer, request_logger=None,
                                     chat_template=None, chat_template_content_format="auto", enable_auto_tools=True)
        self.tokenizer = self.renderer.get_tokenizer()
        from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
        self.messages = AnthropicServingMessages.__new__(AnthropicServingMessages)
        self.messages.online_renderer = self.online
        self.messages.renderer = self.renderer
        self.messages.model_config = self.model_config
        try:
            self.merge = AnthropicServingMessages._should_merge_inline_system(self.online)
        except TypeError:
            # vLLM's probe knows no tojson(ensure_ascii=...): a server of such a model does not start.
            self.merge = None

    async def prompts(self, kind, body):
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse
        body = copy.deepcopy(body)
        try:
            request = self.request(kind, body)
        except Exception as error:
            return error_of("request", error)
        try:
            if kind == "messages":
                effort = "none"
                if request.thinking is not None and request.thinking.type == "disabled":
                    effort = await self.messages._probe_disabled_thinking_effort()
                request = self.messages.to_chat_completion_request(request, merge_inline_system=self.merge, disabled_thinking_effort=effort)
                kind = "chat"
            if kind == "chat":
                result = await self.online.render_chat(request)
            elif kind == "responses":
                result = await self.online.render_responses(request)
            elif kind == "completions":
                result = await self.online.render_completion(request)
            else:
                result = await self.pooling(request)
        except Exception as error:
            return error_of("template", error)
        if isinstance(result, ErrorResponse):
            return {"error": {"where": "request", "type": "ErrorResponse", "message": result.error.message[:240]}}
        if kind == "chat":
            inputs = result[1]
        elif kind == "responses":
            inputs = [result.engine_input]
        else:
            inputs = result
        out = []
        for one in inputs:
            out.append({"text": one.get("prompt"), **ids_of(one["prompt_token_ids"])})
        return {"prompts": out}

    def request(self, kind, body):
        from pydantic import TypeAdapter
        if kind == "responses":
            from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
            return TypeAdapter(ResponsesRequest).validate_json(json.dumps(body))
        if kind == "messages":
            from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
            return TypeAdapter(AnthropicMessagesRequest).validate_json(json.dumps(body))
        if kind == "chat":
            from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
            return TypeAdapter(ChatCompletionRequest).validate_python(body)
        if kind == "completions":
            from vllm.entrypoints.openai.completion.protocol import CompletionRequest
            return TypeAdapter(CompletionRequest).validate_python(body)
        from vllm.entrypoints.pooling.embed.protocol import EmbeddingRequest
        return TypeAdapter(EmbeddingRequest).validate_python(body)

    async def pooling(self, request):
        if hasattr(request, "messages"):
            conversations = request.messages
            if not isinstance(conversations[0], list):
                conversations = [conversations]
            out = []
            for messages in conversations:
                _, inputs = await self.online.preprocess_chat(request, messages, None, "auto", None)
                out += inputs
            return out
        return await self.online.preprocess_completion(request, prompt_input=request.input, prompt_embeds=None)


class Harmony:
    """gpt-oss: vLLM renders it with openai_harmony; no model directory is needed."""

    def __init__(self):
        from vllm.renderers.online_renderer import OnlineRenderer
        self.online = OnlineRenderer.__new__(OnlineRenderer)
        self.online.parser = None
        self.online.use_harmony = True
        self.online.supports_browsing = self.online.supports_code_interpreter = False
        self.online.enable_auto_tools = True
        self.online.exclude_tools_when_tool_choice_none = False
        self.online.trust_request_chat_template = False
        self.online.renderer = type("R", (), {"tokenizer": None, "get_tokenizer": lambda self: None})()
        self.online.model_config = type("C", (), {"max_model_len": 131072})()

    async def prompts(self, kind, body):
        from vllm.entrypoints.openai.parser.harmony_utils import get_encoding
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse
        body = copy.deepcopy(body)
        try:
            request = Oracle.request(None, kind, body)
        except Exception as error:
            return error_of("request", error)
        try:
            if kind == "messages":
                from vllm.entrypoints.anthropic.serving import AnthropicServingMessages as Messages
                effort = "low" if request.thinking is not None and request.thinking.type == "disabled" else "none"
                request = Messages.to_chat_completion_request(request, merge_inline_system=True, disabled_thinking_effort=effort)
                kind = "chat"
            if kind == "chat":
                result = await self.online.render_chat(request)
            else:
                result = await self.online.render_responses(request)
        except Exception as error:
            return error_of("template", error)
        if isinstance(result, ErrorResponse):
            return {"error": {"where": "request", "type": "ErrorResponse", "message": result.error.message[:240]}}
        one = result[1][0] if kind == "chat" else result.engine_input
        ids = one["prompt_token_ids"]
        return {"prompts": [{"text": get_encoding().decode(ids), **ids_of(ids)}]}


def model_directory(models, name, scratch):
    source = models / name
    target = scratch / name
    target.mkdir()
    for file in source.iterdir():
        shutil.copy(file, target / file.name)
        os.chmod(target / file.name, 0o644)
    if not (target / "tokenizer.json").exists():
        shutil.copy(models / "tokenizer.json", target / "tokenizer.json")
    (target / "config.json").write_text(json.dumps(CONFIG))
    return target


async def run(oracle, kinds):
    out = []
    for kind, bodies in kinds.items():
        for name, body in bodies.items():
            out.append({"name": name, "kind": kind, "body": body, **await oracle.prompts(kind, body)})
    return out


def write(path, model, cases_):
    import jinja2, tokenizers, transformers, vllm
    head = {"model": model, "oracle": {"vllm": vllm.__version__, "transformers": transformers.__version__,
                                       "tokenizers": tokenizers.__version__, "jinja2": jinja2.__version__}, "frozen": {"now": NOW}}
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases_)
    path.write_text(json.dumps(head, ensure_ascii=False)[:-1] + ', "cases": [\n' + lines + "\n]}\n", encoding="utf-8")
    print(model, len(cases_), sum("error" in c for c in cases_), "errors", flush=True)


def main():
    out = Path(sys.argv[1]); out.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2:]
    freeze_time()
    chat_models = HERE.parent.parent / "chat-models"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        if not wanted or "gptoss" in wanted:
            kinds = {"chat": cases.harmony_chats(), "responses": cases.responses(), "messages": cases.messages()}
            write(out / "gptoss.json", "gptoss", asyncio.run(run(Harmony(), kinds)))
        for name in CHAT_MODELS:
            if wanted and name not in wanted:
                continue
            oracle = Oracle(model_directory(chat_models, name, scratch), "generate")
            kinds = {"chat": cases.chats(), "responses": cases.responses()}
            if oracle.merge is not None:
                kinds["messages"] = cases.messages()
            write(out / f"{name}.json", name, asyncio.run(run(oracle, kinds)))
        for name in OWN_MODELS:
            if wanted and name not in wanted:
                continue
            directory = model_directory(HERE.parent / "models", name, scratch)
            cases_ = asyncio.run(run(Oracle(directory, "generate"), {"completions": cases.completions(), "chat": cases.chats()}))
            shutil.rmtree(scratch / name)
            directory = model_directory(HERE.parent / "models", name, scratch)
            cases_ += asyncio.run(run(Oracle(directory, "pooling"), {"embeddings": cases.embeddings()}))
            write(out / f"{name}.json", name, cases_)


if __name__ == "__main__":
    main()
