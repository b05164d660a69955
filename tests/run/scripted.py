"""Starting the scripted server, and templates for each form in which models write calls.

Standard library only.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time

import t9server

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Of each form of tests/lib/dialect_forms.c: a model's own template, used where it is at hand, and
# the words by which our own template becomes one of that dialect: agent.jinja, or for those of the
# second list chat.jinja, which tells the model of no tools, so that the server must.
FORMS = {
    "harmony": ("openai-gpt-oss-120b", "<|channel|><|message|>"),
    "gemma4": ("google-gemma-4-31B-it", "<|tool_call>"),
    "kimi_k2": ("moonshotai-Kimi-K2", "<|tool_calls_section_begin|>"),
    "deepseek": ("deepseek-ai-DeepSeek-V3.1", "<\uff5cAssistant\uff5c>"),
    "deepseek_r1": ("llama-cpp-deepseek-r1", "<\uff5cAssistant\uff5c>"),
    "mistral": ("mistralai-Ministral-3-14B-Reasoning-2512", "[TOOL_CALLS]"),
    "mistral_list": ("mistralai-Mistral-Nemo-Instruct-2407", "[TOOL_CALLS]"),
    "lfm2": ("LFM2.5-8B-A1B", "<|tool_call_start|>"),
    "glm": ("GLM-4.7-Flash", "<arg_key><arg_value>"),
    "qwen_xml": ("Qwen3-Coder", "<function=<parameter="),
    "json_tags": ("NVIDIA-Nemotron-Nano-v2", "<TOOLCALL>"),
    "apriel": ("unsloth-Apriel-1.5", "<tool_calls>["),
    "hermes": ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ""),
    "llama3": ("meta-llama-Llama-3.1-8B-Instruct", "<|start_header_id|>ipython"),
    "generic_json": ("microsoft-Phi-3.5-mini-instruct", ""),
}
TOLD_NO_TOOLS = ["generic_json", "deepseek_r1"]


def template_of(form, folder=""):
    """The path of a template whose models write in that form."""
    name, words = FORMS[form]
    path = os.path.join(folder, name + ".jinja")
    if folder and os.path.exists(path):
        return path
    path = os.path.join(TESTS, "data", "templates",
                        "chat.jinja" if form in TOLD_NO_TOOLS else "agent.jinja")
    if not words:
        return path
    with open(path) as f:
        source = f.read()
    # Not the mark of those that it is itself.
    source = "{#- " + words + " -#}\n" + source.replace("<tool_call>", "<a_call>")
    made = tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False)
    with made:
        made.write(source)
    MADE.append(made.name)
    return made.name


MADE = []


class Scripted:
    """The scripted server; `with` ends it."""

    def __init__(self, program, script, template, form=None):
        self.script = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(script, self.script)
        self.script.flush()
        self.log = tempfile.TemporaryFile()
        self.proc = subprocess.Popen(
            [program, "--script", self.script.name, "--template", template,
             *(("--form", form) if form else ())], stdin=subprocess.DEVNULL, stderr=self.log)
        until = time.monotonic() + 30
        while True:
            found = re.search(r"listening on http://[^ ]*:(\d+)", self.stderr())
            if found:
                self.port = int(found.group(1))
                return
            if self.proc.poll() is not None or time.monotonic() > until:
                self.proc.kill()
                raise t9server.ServerFailed(self.proc.wait(), self.stderr())
            time.sleep(0.02)

    def stderr(self):
        return os.pread(self.log.fileno(), 1 << 26, 0).decode("utf-8", "replace")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.proc.send_signal(signal.SIGTERM)
        self.proc.wait(30)
