"""Request bodies for the shapes beyond plain chat. Own texts; nothing is taken from anywhere."""

WEATHER = {"type": "object", "properties": {
    "location": {"type": "string", "description": "City, e.g. \"Zürich\""},
    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
    "days": {"type": "integer", "minimum": 1}}, "required": ["location"]}
FLAT = {"type": "function", "name": "get_weather", "description": "Weather – 天気", "parameters": WEATHER}
CALL = {"type": "function_call", "call_id": "call00001", "name": "get_weather", "arguments": "{\"location\": \"Zürich\", \"days\": 3}"}
OUTPUT = {"type": "function_call_output", "call_id": "call00001", "output": "21.5"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def responses():
    """name -> body of /v1/responses"""
    think = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Let me see."}]}
    long = []
    for i in range(50):
        long += [user(f"Question {i}: où, 何, {i * 37 % 101}?"), {"role": "assistant", "content": f"Answer {i}. " * (i % 4 + 1)}]
    return {
        "string": {"input": "Hi, what is 2+2?"},
        "string_empty": {"input": ""},
        "list_empty": {"input": []},
        "instructions": {"input": "Hi", "instructions": "Be terse."},
        "instructions_empty": {"input": "Hi", "instructions": ""},
        "instructions_and_system": {"input": [{"role": "system", "content": "S"}, user("Hi")], "instructions": "Be terse."},
        "user_list": {"input": [user("Hi")]},
        "user_typed": {"input": [{"type": "message", "role": "user", "content": "Hi"}]},
        "user_parts": {"input": [user([{"type": "input_text", "text": "one"}, {"type": "input_text", "text": " two"}])]},
        "user_parts_extra": {"input": [user([{"type": "input_text", "text": "one", "foo": 1}])]},
        "user_text_part": {"input": [user([{"type": "text", "text": "one"}])]},
        "user_name": {"input": [{"role": "user", "content": "Hi", "name": "bob", "extra": 1}]},
        "user_null": {"input": [{"role": "user", "content": None}]},
        "user_no_content": {"input": [{"role": "user"}]},
        "developer": {"input": [{"role": "developer", "content": "D"}, user("Hi")]},
        "developer_middle": {"input": [user("a"), {"role": "assistant", "content": "b"}, {"role": "developer", "content": "D"}, user("Hi")]},
        "system_parts": {"input": [{"role": "system", "content": [{"type": "input_text", "text": "S1"}, {"type": "input_text", "text": "S2"}]}, user("Hi")]},
        "assistant_string": {"input": [user("a"), {"role": "assistant", "content": "b"}, user("c")]},
        "assistant_typed_string": {"input": [user("a"), {"type": "message", "role": "assistant", "content": "b"}, user("c")]},
        "assistant_parts": {"input": [user("a"), assistant("b"), user("c")]},
        "assistant_parts_full": {"input": [user("a"), assistant("b", id="msg_1", status="completed"), user("c")]},
        "assistant_parts_untyped": {"input": [user("a"), {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]}, user("c")]},
        "assistant_two_parts": {"input": [user("a"), {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "b1"}, {"type": "output_text", "text": "b2"}]}, user("c")]},
        "assistant_input_text": {"input": [user("a"), {"type": "message", "role": "assistant", "content": [{"type": "input_text", "text": "b"}]}, user("c")]},
        "assistant_refusal": {"input": [user("a"), {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, user("c")]},
        "assistant_empty_parts": {"input": [user("a"), {"type": "message", "role": "assistant", "content": []}, user("c")]},
        "assistant_twice": {"input": [user("a"), {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}, user("d")]},
        "prefill_last": {"input": [user("a"), {"role": "assistant", "content": "b"}]},
        "continue_in_progress": {"input": [user("a"), assistant("Once upon ", id="m", status="in_progress")]},
        "continue_incomplete": {"input": [user("a"), assistant("Once upon", status="incomplete")]},
        "continue_string": {"input": [user("a"), {"type": "message", "role": "assistant", "content": "Once upon", "status": "in_progress"}]},
        "continue_untyped": {"input": [user("a"), {"role": "assistant", "content": "Once", "status": "incomplete"}]},
        "continue_user": {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Once"}], "status": "in_progress"}]},
        "call": {"input": [user("Weather?"), CALL, OUTPUT], "tools": [FLAT]},
        "call_id_extra": {"input": [user("Weather?"), {**CALL, "id": "fc_1", "status": "completed"}, {**OUTPUT, "id": "o1", "status": "completed"}], "tools": [FLAT]},
        "call_no_tools": {"input": [user("Weather?"), CALL, OUTPUT]},
        "call_parallel": {"input": [user("Both?"), CALL, {**CALL, "call_id": "call00002", "name": "search", "arguments": "{\"q\": [1, null, 2.50]}"},
                                    OUTPUT, {**OUTPUT, "call_id": "call00002", "output": "nothing\nfound"}], "tools": [FLAT]},
        "call_after_text": {"input": [user("Weather?"), assistant("Let me look."), CALL, OUTPUT, user("and?")], "tools": [FLAT]},
        "call_then_text": {"input": [user("Weather?"), CALL, assistant("Looking."), OUTPUT], "tools": [FLAT]},
        "call_bad_json": {"input": [user("Weather?"), {**CALL, "arguments": "{\"a\": 1,"}, OUTPUT]},
        "call_empty": {"input": [user("Weather?"), {**CALL, "arguments": ""}, OUTPUT]},
        "call_no_arguments": {"input": [user("Weather?"), {"type": "function_call", "call_id": "c", "name": "f"}, OUTPUT]},
        "call_numbers": {"input": [user("go"), {**CALL, "arguments": "{\"a\": 1.0, \"b\": 1e-7, \"c\": 12345678901234567890123, \"d\": \"é\\u2028\"}"}, OUTPUT]},
        "output_parts": {"input": [user("Weather?"), CALL, {**OUTPUT, "output": [{"type": "input_text", "text": "21"}, {"type": "input_text", "text": "°C"}]}], "tools": [FLAT]},
        "output_orphan": {"input": [OUTPUT, user("hm")]},
        "reasoning": {"input": [user("a"), think, assistant("b"), user("c")]},
        "reasoning_id": {"input": [user("a"), {**think, "id": "rs_1"}, assistant("b"), user("c")]},
        "reasoning_call": {"input": [user("a"), think, CALL, OUTPUT], "tools": [FLAT]},
        "reasoning_summary": {"input": [user("a"), {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Sum."}]}, assistant("b"), user("c")]},
        "reasoning_two": {"input": [user("a"), {**think, "content": think["content"] + [{"type": "reasoning_text", "text": "More."}]}, assistant("b"), user("c")]},
        "reasoning_nothing": {"input": [user("a"), {"type": "reasoning", "summary": []}, assistant("b"), user("c")]},
        "reasoning_after_text": {"input": [user("a"), assistant("b"), think, user("c")]},
        "reasoning_last": {"input": [user("a"), {**think, "status": "in_progress"}]},
        "reasoning_encrypted": {"input": [user("a"), {**think, "encrypted_content": "xyz"}, user("c")]},
        "tools": {"input": "Weather?", "tools": [FLAT]},
        "tools_system": {"input": "Weather?", "instructions": "Use tools.", "tools": [FLAT, {"type": "function", "name": "bare", "parameters": None, "strict": True}]},
        "tools_strict": {"input": "go", "tools": [{**FLAT, "strict": True}, {**FLAT, "name": "g", "strict": False, "extra": 1}]},
        "tools_min": {"input": "go", "tools": [{"type": "function", "name": "f"}]},
        "tools_order": {"input": "go", "tools": [{"strict": None, "parameters": {"required": ["b"], "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "type": "object"}, "name": "f", "description": "d", "type": "function"}]},
        "tools_empty": {"input": "go", "tools": []},
        "tools_custom": {"input": "go", "tools": [{"type": "custom", "name": "sh", "description": "Runs."}, FLAT]},
        "tools_custom_call": {"input": [user("go"), {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls \"é\""},
                                        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a b"}], "tools": [{"type": "custom", "name": "sh"}]},
        "tools_namespace": {"input": "go", "tools": [{"type": "namespace", "name": "ns", "description": "n", "tools": [FLAT]}, FLAT]},
        "tools_builtin": {"input": "go", "tools": [{"type": "web_search_preview"}, {"type": "code_interpreter", "container": {"type": "auto"}}, FLAT]},
        "tools_only_builtin": {"input": "go", "tools": [{"type": "web_search_preview"}]},
        "tools_unknown": {"input": "go", "tools": [{"type": "teleport"}]},
        "tools_chat_shape": {"input": "go", "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        "tool_choice_none": {"input": "go", "tools": [FLAT], "tool_choice": "none"},
        "tool_choice_named": {"input": "go", "tools": [FLAT], "tool_choice": {"type": "function", "name": "get_weather"}},
        "effort_low": {"input": "Hi", "reasoning": {"effort": "low"}},
        "effort_high": {"input": "Hi", "reasoning": {"effort": "high", "summary": "auto"}},
        "effort_none": {"input": "Hi", "reasoning": {"effort": "none"}},
        "effort_minimal": {"input": "Hi", "reasoning": {"effort": "minimal"}},
        "effort_null": {"input": "Hi", "reasoning": {"effort": None}},
        "effort_unknown": {"input": "Hi", "reasoning": {"effort": "extreme"}},
        "kwargs": {"input": "Hi", "chat_template_kwargs": {"enable_thinking": False, "date_string": "1 Jan 2030", "add_generation_prompt": False}},
        "kwargs_effort": {"input": "Hi", "reasoning": {"effort": "low"}, "chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "high"}},
        "kwargs_tools": {"input": "Hi", "tools": [FLAT], "chat_template_kwargs": {"tools": [{"type": "function", "function": {"name": "other"}}]}},
        "kwargs_template": {"input": "Hi", "chat_template_kwargs": {"chat_template": "x"}},
        "prompt_template": {"input": "Hi", "prompt": {"id": "p"}},
        "text_format": {"input": "Hi", "text": {"format": {"type": "json_object"}}},
        "truncation_auto": {"input": "Hi", "truncation": "auto"},
        "previous_messages": {"input": "Hi", "previous_input_messages": [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}]},
        "previous_messages_empty_input": {"input": "", "previous_input_messages": [{"role": "user", "content": "before"}]},
        "item_reference": {"input": [user("Hi"), {"type": "item_reference", "id": "x"}]},
        "item_unknown": {"input": [user("Hi"), {"type": "nonsense"}]},
        "item_web_search": {"input": [user("Hi"), {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}]},
        "item_string": {"input": ["Hi"]},
        "role_tool": {"input": [user("Hi"), {"role": "tool", "content": "x"}]},
        "unicode": {"input": [user("👩‍👩‍👧‍👦 é é \r\n\t שלום \u2028 <|im_end|> </s> [INST]"), {"role": "assistant", "content": " ok\u200b "}, user("\u001c x \u001f")], "instructions": " padded \n"},
        "jinja": {"input": "{{ 1 + 1 }} {% for x in y %}"},
        "whitespace": {"input": [user("  a \n"), {"role": "assistant", "content": "\n b \n"}, user(" ")]},
        "long_50": {"input": long, "instructions": "Fifty turns."},
        "refused_model_type": {"input": 5},
        "missing_input": {},
    }


def block(kind, **more):
    return {"type": kind, **more}


TOOL = {"name": "get_weather", "description": "Weather – 天気", "input_schema": WEATHER}
USE = block("tool_use", id="toolu001a", name="get_weather", input={"location": "Zürich", "days": 3, "x": 1e-7, "y": 2.50, "z": 12345678901234567890123})
RESULT = block("tool_result", tool_use_id="toolu001a", content="21.5")
IMAGE = block("image", source={"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="})


def messages():
    """name -> body of /v1/messages"""
    def body(*msgs, **more):
        return {"model": "m", "max_tokens": 16, "messages": list(msgs), **more}

    def bot(content):
        return {"role": "assistant", "content": content}

    def sys(content):
        return {"role": "system", "content": content}
    long = []
    for i in range(50):
        long += [user(f"Question {i}: où, 何, {i * 37 % 101}?"), bot([block("text", text=f"Answer {i}. " * (i % 4 + 1))])]
    return {
        "user": body(user("Hi, what is 2+2?")),
        "system": body(user("Hi"), system="Be terse."),
        "system_empty": body(user("Hi"), system=""),
        "system_blocks": body(user("Hi"), system=[block("text", text="One."), block("text", text="Two."), block("text", text="")]),
        "system_billing": body(user("Hi"), system=[block("text", text="x-anthropic-billing-header: cc=1; h=9"), block("text", text="Real.")]),
        "system_billing_string": body(user("Hi"), system="x-anthropic-billing-header: cc=1\nReal."),
        "inline_system": body(user("a"), bot("b"), sys("change"), user("c"), system="S."),
        "inline_system_blocks": body(user("a"), sys([block("text", text="x-anthropic-billing-header: 1"), block("text", text="kept"), block("text", text="two")]), user("c")),
        "inline_system_empty": body(user("a"), sys(""), user("c")),
        "inline_system_first": body(sys("first"), user("c")),
        "turns": body(user("a"), bot("b"), user("c")),
        "blocks_one": body(user([block("text", text="one")])),
        "blocks_two": body(user([block("text", text="one"), block("text", text="two")])),
        "blocks_empty_text": body(user([block("text", text="")]), user("c")),
        "blocks_none": body(user([]), user("c")),
        "blocks_extra": body(user([block("text", text="one", cache_control={"type": "ephemeral"}, foo=1)])),
        "assistant_blocks": body(user("a"), bot([block("text", text="one"), block("text", text="two")]), user("c")),
        "assistant_empty": body(user("a"), bot([]), user("c")),
        "assistant_empty_string": body(user("a"), bot(""), user("c")),
        "prefill": body(user("a"), bot("Once upon")),
        "thinking_history": body(user("a"), bot([block("thinking", thinking="Hm.", signature="s"), block("text", text="b")]), user("c")),
        "thinking_only": body(user("a"), bot([block("thinking", thinking="Hm."), block("thinking", thinking="More.")]), user("c")),
        "redacted": body(user("a"), bot([block("redacted_thinking", data="zzz"), block("text", text="b")]), user("c")),
        "tool_turn": body(user("Weather?"), bot([block("text", text="Looking."), USE]), user([RESULT]), tools=[TOOL]),
        "tool_turn_no_tools": body(user("Weather?"), bot([USE]), user([RESULT])),
        "tool_parallel": body(user("Both?"), bot([USE, {**USE, "id": "toolu002b", "name": "search", "input": {}}]),
                              user([RESULT, {**RESULT, "tool_use_id": "toolu002b", "content": [block("text", text="a"), block("text", text="b")]}]), tools=[TOOL]),
        "tool_result_and_text": body(user("Weather?"), bot([USE]), user([RESULT, block("text", text="thanks")]), tools=[TOOL]),
        "tool_result_error": body(user("Weather?"), bot([USE]), user([{**RESULT, "is_error": True, "content": "boom"}]), tools=[TOOL]),
        "tool_result_none": body(user("Weather?"), bot([USE]), user([block("tool_result", tool_use_id="toolu001a")]), tools=[TOOL]),
        "tool_result_reference": body(user("Find"), bot([USE]), user([{**RESULT, "content": [block("tool_reference", tool_name="get_weather")]}]), tools=[TOOL]),
        "tool_result_assistant": body(user("x"), bot([{**RESULT, "content": "text"}]), user("y")),
        "tool_use_no_input": body(user("x"), bot([block("tool_use", id="i12345678", name="f")]), user([{**RESULT, "tool_use_id": "i12345678"}])),
        "tools_min": body(user("x"), tools=[{"name": "f", "input_schema": {}}]),
        "tools_schema_typeless": body(user("x"), tools=[{"name": "f", "input_schema": {"properties": {"a": {"type": "string"}}}}]),
        "tools_strict": body(user("x"), tools=[{**TOOL, "strict": True, "cache_control": {"type": "ephemeral"}, "defer_loading": True}]),
        "tools_empty": body(user("x"), tools=[]),
        "tools_choice_none": body(user("x"), tools=[TOOL], tool_choice={"type": "none"}),
        "tools_server": body(user("x"), tools=[{"type": "web_search_20250305", "name": "web_search"}]),
        "tool_added": body(user("x"), sys([block("tool_addition", tool={"type": "tool_definition", "definition": {"name": "g", "input_schema": {"type": "object"}}})]), user("y"), tools=[TOOL]),
        "tool_removed": body(user("x"), sys([block("tool_removal", tool={"type": "tool_reference", "name": "get_weather"})]), user("y"), tools=[TOOL, {"name": "g", "input_schema": {}}]),
        "tool_undeferred": body(user("x"), sys([block("tool_addition", tool={"type": "tool_reference", "name": "get_weather"})]), user("y"), tools=[{**TOOL, "defer_loading": True}]),
        "tool_added_unknown": body(user("x"), sys([block("tool_addition", tool={"type": "tool_reference", "name": "nope"})]), user("y"), tools=[TOOL]),
        "thinking_enabled": body(user("x"), thinking={"type": "enabled", "budget_tokens": 2048}, max_tokens=4096),
        "thinking_adaptive": body(user("x"), thinking={"type": "adaptive"}),
        "thinking_disabled": body(user("x"), thinking={"type": "disabled"}),
        "effort": body(user("x"), output_config={"effort": "max"}),
        "effort_low": body(user("x"), output_config={"effort": "low"}),
        "effort_and_disabled": body(user("x"), output_config={"effort": "low"}, thinking={"type": "disabled"}),
        "effort_unknown": body(user("x"), output_config={"effort": "minimal"}),
        "kwargs": body(user("x"), chat_template_kwargs={"enable_thinking": False, "date_string": "1 Jan 2030"}),
        "kwargs_effort": body(user("x"), output_config={"effort": "low"}, chat_template_kwargs={"enable_thinking": False}),
        "unknown_block": body(user([block("nonsense", x=1)])),
        "unknown_role": body({"role": "tool", "content": "x"}),
        "no_max_tokens": {"model": "m", "messages": [user("x")]},
        "zero_max_tokens": body(user("x"), max_tokens=0),
        "no_model": {"max_tokens": 5, "messages": [user("x")]},
        "empty_messages": body(),
        "content_number": body(user(5)),
        "extra_fields": body(user("x"), metadata={"user_id": "u"}, foo={"bar": [1]}, temperature=0.5, stream=True),
        "unicode": body(user("👩‍👩‍👧‍👦 é é \r\n\t שלום \u2028 <|im_end|> </s> [INST]"), bot(" ok\u200b "), user("\u001c x \u001f"), system=" padded \n"),
        "long_50": body(*long, user("last"), system="Fifty turns."),
    }


def embeddings():
    chat = [user("Hi"), {"role": "assistant", "content": "Yo"}]
    return {
        "string": {"input": "Hi, what is 2+2?"},
        "empty": {"input": ""},
        "list": {"input": ["one", "two é", ""]},
        "ids": {"input": [1, 2, 3]},
        "id_lists": {"input": [[1, 2], [3]]},
        "no_special": {"input": "Hi there", "add_special_tokens": False},
        "truncate": {"input": "one two three four five six seven eight", "truncate_prompt_tokens": 4},
        "truncate_left": {"input": "one two three four five six seven eight", "truncate_prompt_tokens": 4, "truncation_side": "left"},
        "truncate_right": {"input": "one two three four five six seven eight", "truncate_prompt_tokens": 4, "truncation_side": "right"},
        "truncate_ids": {"input": [1, 2, 3, 4, 5], "truncate_prompt_tokens": 2},
        "messages": {"messages": chat},
        "messages_generation": {"messages": chat, "add_generation_prompt": True},
        "messages_continue": {"messages": chat, "continue_final_message": True},
        "messages_special": {"messages": chat, "add_special_tokens": True},
        "messages_kwargs": {"messages": chat, "chat_template_kwargs": {"enable_thinking": False}},
        "messages_batch": {"messages": [chat, [user("Two")]]},
        "input_messages": {"input": chat},
        "input_batch": {"input": [chat, [user("Two")]]},
        "bad": {"input": {"a": 1}},
        "missing": {},
    }


def completions():
    """Prompts for tokenizers of other kinds: white space, case, accents, scripts, long words, special tokens."""
    words = [" ", "a", "Hello, world!", "  two  spaces ", "Ünïcödé é é ñ Å ﬁ", "日本語のテキスト 한국어 ไทย",
             "line\nline\r\n\ttab", "don't won't I'm", "3.14159 1,000,000 0x1F", "x" * 250, "Donaudampfschifffahrtsgesellschaft " * 6,
             "👩‍👩‍👧‍👦 ☺️ 🇨🇭", "\u0000\u0007\u200b\ufeff\ufffd", "[CLS] a [SEP] b [MASK] [UNK] <s> </s> <unk>", "▁ ▁▁x ##ing ing##",
             "<b>tag</b> &amp; \"quoted\" 'single' `code` – — …", "camelCaseWords snake_case_words kebab-case", "ALL CAPS Title Case",
             "The quick brown fox jumps over the lazy dog. " * 12, "fn main() { println!(\"{}\", 1 << 3); }"]
    out = {f"text_{i}": {"prompt": w} for i, w in enumerate(words)}
    out["plain"] = {"prompt": "Hello there", "add_special_tokens": False}
    out["batch"] = {"prompt": ["one", "two words", ""]}
    return out


def chats():
    turns = []
    for i in range(50):
        turns += [user(f"Question {i}: où, 何, {i * 37 % 101}? \n"), {"role": "assistant", "content": f"Answer {i}. " * (i % 4 + 1) + "\n"}]
    call = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": "{\"location\": \"Zürich\"}"}}
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "Weather – 天気", "parameters": WEATHER}}]
    agent = [{"role": "system", "content": "Use tools."}]
    for i in range(50):
        c = {**call, "id": f"call{i:05}"}
        agent += [user(f"Day {i}?"), {"role": "assistant", "content": None, "tool_calls": [c]},
                  {"role": "tool", "tool_call_id": c["id"], "content": f"{i}.5 °C"}, {"role": "assistant", "content": f"It is {i}.5 °C."}]
    return {
        "short": {"messages": [user("Hi")]},
        "long_50": {"messages": turns + [user("last")]},
        "long_50_system": {"messages": [{"role": "system", "content": "Fifty turns."}] + turns + [user("last")]},
        "long_50_continued": {"messages": turns, "add_generation_prompt": False, "continue_final_message": True},
        "agent_50": {"messages": agent + [user("last")], "tools": tools},
        "agent_50_thinking": {"messages": [dict(m, reasoning="Hm.") if m["role"] == "assistant" else m for m in agent] + [user("last")], "tools": tools},
    }


def harmony_chats():
    """More of gpt-oss: schemas, reasoning histories, odd content."""
    def tool(name, schema, description="d"):
        return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

    def ask(*tools, **more):
        return {"messages": [user("go")], "tools": list(tools), **more}

    def obj(**props):
        return {"type": "object", "properties": props}
    bot = {"role": "assistant"}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}
    done = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    return {
        **{f"chat_{k}": v for k, v in chats().items()},
        "one_of_property": ask(tool("f", obj(x={"oneOf": [{"type": "string", "description": "A.", "default": "q"}, {"type": "integer", "nullable": True}, {"type": "string", "enum": ["u", "v"], "default": "u"}], "description": "Which.", "default": 3}))),
        "one_of_same_description": ask(tool("f", obj(x={"oneOf": [{"type": "string", "description": "S"}, {"type": "number", "description": "S"}, {"type": "number", "description": "T"}], "description": "S", "default": "z"}, y={"type": "string"}))),
        "one_of_top": ask(tool("f", {"oneOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "string", "description": "t", "default": "k"}, {"type": "number", "default": 1.5, "nullable": True}]})),
        "one_of_nested": ask(tool("f", obj(a={"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"b": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}}]}}))),
        "one_of_enum_default": ask(tool("f", obj(x={"oneOf": [{"type": "string"}], "enum": ["a"], "default": "a"}))),
        "one_of_empty": ask(tool("f", obj(x={"oneOf": []}, y={"oneOf": {"a": 1}}))),
        "any_of": ask(tool("f", obj(x={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "X"}, y={"allOf": [{"$ref": "#/$defs/Y"}]}))),
        "titles_examples": ask(tool("f", {"type": "object", "description": "Top.", "title": "T", "properties": {"x": {"type": "string", "title": "Xt", "description": "Xd\nsecond", "examples": ["a", 5, "b\"c"]}, "y": {"type": "number", "examples": []}}})),
        "defaults": ask(tool("f", obj(a={"type": "array", "items": {"type": "integer"}, "default": [1, 2.50, "x", None, True, {"k": "é\n"}]}, b={"type": "object", "default": {"z": 1, "a": 1e-7, "m": 1e16}}, c={"type": "number", "default": 12345678901234567890123}, d={"type": "number", "default": -0.0}, e={"type": "string", "default": "q\"uo\nte"}, f={"type": "integer", "default": 1e21}, g={"type": "boolean", "default": None}))),
        "nullable": ask(tool("f", obj(a={"type": "string", "nullable": True}, b={"type": ["string", "null"], "nullable": True}, c={"type": "object", "properties": {"null_x": {"type": "string"}}, "nullable": True}, d={"type": "string", "enum": ["null"], "nullable": True}))),
        "enums": ask(tool("f", obj(a={"type": "string", "enum": ["x", 5, None]}, b={"type": "integer", "enum": [1, 2]}, c={"enum": ["p", "q"]}, d={"type": "string", "enum": []}, e={"type": "string", "enum": [1]}, f={"type": "string", "enum": [], "default": "s"}))),
        "arrays": ask(tool("f", obj(a={"type": "array"}, b={"type": "array", "items": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}}, c={"type": "array", "items": {"type": "object", "description": "Each.", "properties": {"q": {"type": "boolean", "default": True}}, "required": ["q"]}}, d={"type": "array", "items": [{"type": "string"}]}))),
        "type_lists": ask(tool("f", obj(a={"type": ["integer", "null"]}, b={"type": []}, c={"type": ["object", 5]}, d={"type": [5]}))),
        "nested_objects": ask(tool("f", obj(a=obj(b=obj(c={"type": "string", "description": "deep", "title": "t"}, d={"type": "integer", "default": 3}))))),
        "no_type": ask(tool("f", {"properties": {"a": {"type": "string"}}}), tool("g", {}), tool("h", {"type": "string"}), tool("i", {"type": "weird"})),
        "required_odd": ask(tool("f", {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["b", 5]}), tool("g", {"type": "object", "properties": {"a": 5, "b": "x", "c": True}, "required": "a"})),
        "property_is_list": ask(tool("f", {"type": "object", "properties": ["a"]})),
        "descriptions": ask(tool("f", obj(), "one\n\ntwo\r\nthree\n"), tool("g", obj(), ""), tool("h", None, "only"), tool("i", obj(a={"type": "string", "description": ""}))),
        "ref_defs": ask(tool("f", {"type": "object", "$defs": {"P": {"type": "object"}}, "properties": {"p": {"$ref": "#/$defs/P"}}})),
        "const_format": ask(tool("f", obj(a={"const": "x"}, b={"type": "string", "format": "date", "pattern": "^a"}, c={"type": "null"}))),
        "unicode_schema": ask(tool("f", obj(**{"schlüssel": {"type": "string", "enum": ["é", "\u2028", "<|end|>"]}, "a b": {"type": "string", "default": "天気"}}))),
        "effort_low": {"messages": [user("x")], "reasoning_effort": "low"},
        "effort_high": {"messages": [user("x")], "reasoning_effort": "high"},
        "effort_none": {"messages": [user("x")], "reasoning_effort": "none"},
        "effort_minimal": {"messages": [user("x")], "reasoning_effort": "minimal"},
        "reasoning_dropped": {"messages": [user("a"), {**bot, "content": "b", "reasoning": "r1"}, user("c"), {**bot, "content": "d", "reasoning": "r2"}, user("e")]},
        "reasoning_kept_after_final": {"messages": [user("a"), {**bot, "content": "b", "reasoning": "r1"}, user("c"), {**bot, "reasoning_content": "r2", "tool_calls": [call]}, done]},
        "reasoning_only_last": {"messages": [user("a"), {**bot, "reasoning": "thinking"}]},
        "reasoning_both": {"messages": [user("a"), {**bot, "reasoning": "r", "reasoning_content": "old", "content": "x", "tool_calls": [call]}, done]},
        "call_text_parts": {"messages": [user("a"), {**bot, "content": [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2"}], "tool_calls": [call]}, {**done, "content": [{"type": "text", "text": "o1"}, {"type": "text", "text": "o2"}]}]},
        "call_unknown_id": {"messages": [user("a"), {**bot, "tool_calls": [call]}, {**done, "tool_call_id": "other"}]},
        "call_null_list": {"messages": [user("a"), {**bot, "content": "x", "tool_calls": None}, user("b")]},
        "call_empty_list": {"messages": [user("a"), {**bot, "content": "x", "tool_calls": []}, user("b")]},
        "assistant_parts_first_empty": {"messages": [user("a"), {**bot, "content": [{"type": "text", "text": ""}, {"type": "text", "text": "later"}]}, user("b")]},
        "assistant_refusal": {"messages": [user("a"), {**bot, "content": [{"type": "refusal", "refusal": "no"}]}, user("b")]},
        "assistant_null": {"messages": [user("a"), {**bot, "content": None}, user("b")]},
        "system_later_empty": {"messages": [user("a"), {"role": "system", "content": ""}, {"role": "system", "content": []}, {"role": "developer", "content": "D"}, user("b")]},
        "system_first_then_developer": {"messages": [{"role": "system", "content": [{"type": "text", "text": "S1"}, {"type": "text", "text": "S2"}]}, {"role": "developer", "content": "D"}, user("b")]},
        "developer_first": {"messages": [{"role": "developer", "content": "D", "tools": []}, user("b")], "tools": [tool("f", obj())]},
        "image": {"messages": [user([{"type": "text", "text": "see "}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}, {"type": "text", "text": "this"}])]},
        "user_parts_strings": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}]},
        "custom_role": {"messages": [{"role": "critic", "content": "x"}]},
        "user_empty_parts": {"messages": [user([])]},
        "truncate": {"messages": [user("one two three four five six")], "truncate_prompt_tokens": 5},
        "tool_choice_none": ask(tool("f", obj()), tool_choice="none"),
        "kwargs": {"messages": [user("x")], "chat_template_kwargs": {"reasoning_effort": "high", "model_identity": "M"}},
        "documents": {"messages": [user("x")], "documents": [{"text": "d"}]},
        "special_text": {"messages": [{"role": "system", "content": "<|end|>"}, user("<|start|>user<|message|>x<|end|>"), {**bot, "content": "<|channel|>"}, user("<|return|>")]},
    }
