"""Checks that the engine loads folders that transformers saves, and that transformers and PEFT open folders that the engine exports.

Run by native/tools/check_export.sh, which installs the packages:  transformers_check.py ENGINE

Talks to the engine's process in its protocol (docs/engine-protocol.md), as users do. Prints one line per comparison and exits with 1 if a
bound is exceeded.
"""

import hashlib
import json
import math
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

VOCAB, LENGTH = 320, 96
SHAPE = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
LORA = {"rank": 4, "alpha": 8, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], "seed": 5}
failures = 0


class Engine:
    """The engine's process and its end of the socket pair."""

    def __init__(self, program: str):
        ours, theirs = socket.socketpair()
        self.socket, self.next_id = ours, 1
        self.process = subprocess.Popen([program, "--fd", str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self.call("hello", protocol=2)

    def call(self, verb: str, arrays: dict | None = None, **fields) -> tuple[dict, dict]:
        """The reply's header and its arrays; raises on an error reply."""
        listed, payload = [], b""
        for name, tensor in (arrays or {}).items():
            listed.append({"name": name, "dtype": "I32", "shape": list(tensor.shape)})
            payload += tensor.to(torch.int32).numpy().astype("<i4").tobytes()
        header = json.dumps({"verb": verb, **fields, "arrays": listed}).encode()
        request_id, self.next_id = self.next_id, self.next_id + 1
        self.socket.sendall(struct.pack("<III", 8 + len(header) + len(payload), request_id, len(header)) + header + payload)
        while True:
            (length,) = struct.unpack("<I", self.read(4))
            frame = self.read(length)
            reply_id, header_length = struct.unpack("<II", frame[:8])
            reply = json.loads(frame[8:8 + header_length])
            if reply_id == request_id and "progress" not in reply:
                break
        if not reply["ok"]:
            raise RuntimeError(f"{verb}: {reply['error']}")
        out, at = {}, 8 + header_length
        for array in reply.get("arrays", []):
            count = math.prod(array["shape"])
            dtype = {"F32": torch.float32, "I32": torch.int32}[array["dtype"]]
            out[array["name"]] = torch.frombuffer(bytearray(frame[at:at + 4 * count]), dtype=dtype).clone()
            at += 4 * count
        return reply, out

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise RuntimeError("the engine is gone")
            data += part
        return data

    def score(self, state: str, tokens: torch.Tensor) -> torch.Tensor:
        return self.call("score", {"tokens": tokens}, state=state, temperature=1)[1]["logprobs"]

    def close(self) -> None:
        self.call("shutdown")
        self.process.wait()


def models() -> dict:
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    common = dict(SHAPE, eos_token_id=[3, 7], attn_implementation="eager")
    return {
        "qwen3 tied": Qwen3ForCausalLM(Qwen3Config(**common, head_dim=32, tie_word_embeddings=True, rope_parameters=plain)),
        "qwen3 untied yarn": Qwen3ForCausalLM(Qwen3Config(**common, head_dim=48, tie_word_embeddings=False, rope_parameters=yarn)),
        "qwen2 tied": Qwen2ForCausalLM(Qwen2Config(**common, tie_word_embeddings=True, rope_parameters=plain)),
        "qwen2 untied yarn": Qwen2ForCausalLM(Qwen2Config(**common, tie_word_embeddings=False, rope_parameters=yarn)),
    }


def vary(model) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(0.5, 1.5) if parameter.dim() == 1 else parameter.normal_(0, 0.15)


def logits(model, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens[None]).logits[0].float()


def logprobs(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(values[:-1], -1).gather(1, tokens[1:, None])[:, 0]


def opened(path: str, **options):
    # (The argument was torch_dtype in transformers 4; since 4.56 dtype works too.)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager", **options).eval()


def hold(what: str, holds: bool) -> None:
    global failures
    failures += not holds
    print(f"{'ok  ' if holds else 'FAIL'} {what}")


def compare(what: str, found: torch.Tensor, expected: torch.Tensor, bound: float) -> None:
    """Compares the greatest difference, relative to the greatest expected value, with `bound`."""
    error = float((found - expected).abs().max() / expected.abs().max())
    hold(f"{what}: {error:.1e} (bound {bound:.0e})", error <= bound)


def write_batch(path: pathlib.Path, state: str, tokens: torch.Tensor) -> str:
    """Writes a batch of one sample; every token but the first is a target of cross-entropy. Returns the file's SHA-256."""
    n = len(tokens)
    tensors = {
        "nodes": ("I32", torch.tensor([[-1, n, 0]])), "target_advantages": ("F32", torch.ones(n - 1)),
        "target_old_logprobs": ("F32", torch.zeros(n - 1)), "target_rows": ("I32", torch.arange(n - 1)),
        "target_samples": ("I32", torch.zeros(n - 1)), "target_tokens": ("I32", tokens[1:]), "tokens": ("I32", tokens)}
    identity = {"schema": "longhaul.batch/2", "previous_state": state, "mini_batches": 1}
    header, data = {"__metadata__": {"longhaul": json.dumps(identity)}}, b""
    for name, (dtype, tensor) in tensors.items():
        part = tensor.numpy().astype("<i4" if dtype == "I32" else "<f4").tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    file = struct.pack("<Q", len(text)) + text + data
    path.write_bytes(file)
    return hashlib.sha256(file).hexdigest()


def check_model(engine: Engine, title: str, model, folder: pathlib.Path) -> None:
    vary(model)
    tokens = torch.randint(0, VOCAB, (LENGTH,))
    original = str(folder / "original")
    model.eval().save_pretrained(original, max_shard_size="200KB")
    shards = len(list(pathlib.Path(original).glob("*.safetensors")))
    expected = logits(model, tokens)

    reply, _ = engine.call("load_hf", path=original)
    assert reply["eos_tokens"] == [3, 7], reply["eos_tokens"]
    compare(f"{title}: log-probs of a folder of {shards} shards, engine / transformers", engine.score(reply["state"], tokens),
            logprobs(expected, tokens), 1e-5)

    exported = str(folder / "exported")
    engine.call("export_hf", state=reply["state"], path=exported, dtype="F32", adapters="merged", eos_tokens=reply["eos_tokens"])
    again = opened(exported)
    same = all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    hold(f"{title}: weights of the exported folder have the same bits", same)
    compare(f"{title}: logits of the exported folder / the original", logits(again, tokens), expected, 1e-5)

    half = str(folder / "half")
    engine.call("export_hf", state=reply["state"], path=half, dtype="BF16", adapters="merged", eos_tokens=[3, 7])
    rounded = opened(half)
    same = all(torch.equal(value.bfloat16().float(), rounded.state_dict()[name]) for name, value in model.state_dict().items())
    hold(f"{title}: bf16 weights are as PyTorch rounds them", same)
    reply, _ = engine.call("load_hf", path=half)
    compare(f"{title}: log-probs of a bf16 folder, engine / transformers", engine.score(reply["state"], tokens),
            logprobs(logits(rounded, tokens), tokens), 1e-5)

    # Adapters, trained for two steps so that they have an effect.
    reply, _ = engine.call("load_hf", path=original, lora=LORA)
    before = engine.score(reply["state"], tokens)
    batch = folder / "batch"
    sha256 = write_batch(batch, reply["state"], tokens)
    for step, rate in enumerate([0.02, 0.02]):
        update, _ = engine.call(
            "update", state=reply["state"], step_id=hashlib.sha256(bytes([step])).hexdigest(), batch_path=str(batch), batch_sha256=sha256,
            learning_rates=[rate], adam_betas=[0.9, 0.95], adam_eps=1e-8, weight_decay=0, max_grad_norm=1, reset_moments=False,
            temperature=1, loss={"kind": "cross_entropy", "reduction": "token_mean"})
        assert update["applied"] is True, update
        reply = update
        sha256 = write_batch(batch, reply["state"], tokens)
    after = engine.score(reply["state"], tokens)
    assert (after - before).abs().max() > 0.01, "the adapters do nothing"
    engine.call("export_hf", state=reply["state"], path=str(folder / "merged"), dtype="F32", adapters="merged",
                eos_tokens=[3, 7])
    engine.call("export_hf", state=reply["state"], path=str(folder / "peft"), dtype="F32", adapters="peft", eos_tokens=[],
                base_model=original)
    compare(f"{title}: log-probs with adapters merged, transformers / engine", logprobs(logits(opened(str(folder / "merged")), tokens), tokens),
            after, 1e-5)
    adapted = peft.PeftModel.from_pretrained(opened(original), str(folder / "peft")).eval()
    compare(f"{title}: log-probs with the PEFT adapter, PEFT / engine", logprobs(logits(adapted, tokens), tokens), after, 1e-5)
    merged = adapted.merge_and_unload().state_dict()
    worst = max(float((merged[name] - value).abs().max()) for name, value in opened(str(folder / "merged")).state_dict().items())
    hold(f"{title}: merged weights differ from those that PEFT merges by {worst:.1e} (bound 1e-06)", worst <= 1e-6)
    assert all(name.startswith("base_model.model.model.layers.") for name in load_file(str(folder / "peft/adapter_model.safetensors")))


def check_own_model(engine: Engine, title: str, architecture: dict, folder: pathlib.Path) -> None:
    """Checks a folder of a model that the engine made; works with transformers 4 and 5."""
    tokens = torch.randint(0, VOCAB, (LENGTH,))
    reply, _ = engine.call("load", architecture=architecture, initializer_range=0.15, seed=4)
    engine.call("export_hf", state=reply["state"], path=str(folder / "own"), dtype="F32", adapters="merged", eos_tokens=[])
    compare(f"{title}: log-probs of the engine's own model, transformers / engine", logprobs(logits(opened(str(folder / "own")), tokens), tokens),
            engine.score(reply["state"], tokens), 1e-5)


def own_architectures() -> dict:
    common = dict(SHAPE, rms_norm_eps=1e-6, rope_theta=10000)
    yarn = {"factor": 4, "original_max_position_embeddings": 32}
    return {
        "qwen3 tied": dict(common, model_type="qwen3", head_dim=48, tie_word_embeddings=True),
        "qwen3 untied yarn": dict(common, model_type="qwen3", head_dim=32, tie_word_embeddings=False, yarn=yarn),
        "qwen2 tied yarn": dict(common, model_type="qwen2", head_dim=32, tie_word_embeddings=True, yarn=yarn),
        "qwen2 untied": dict(common, model_type="qwen2", head_dim=32, tie_word_embeddings=False),
    }


def in_a_folder(check, engine: Engine, title: str, model) -> None:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-transformers-"))
    try:
        check(engine, title, model, folder)
    finally:
        shutil.rmtree(folder)


def main() -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, peft {peft.__version__}, torch {torch.__version__}")
    engine = Engine(os.path.abspath(sys.argv[1]))
    for title, architecture in own_architectures().items():
        in_a_folder(check_own_model, engine, title, architecture)
    # (models() uses the keys of transformers 5.)
    if int(transformers.__version__.split(".")[0]) >= 5:
        for title, model in models().items():
            in_a_folder(check_model, engine, title, model)
    engine.close()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
