"""Writes native/tests/fixtures/qwen*.safetensors, the results of PyTorch, transformers and PEFT for tiny random models, and
native/tests/fixtures/qwen3_sharded, a folder of shards as transformers writes it.

    python3 -m venv /tmp/fixtures && /tmp/fixtures/bin/pip install -r native/tools/requirements.txt
    /tmp/fixtures/bin/python native/tools/make_fixtures.py && /tmp/fixtures/bin/python native/tools/fixture_losses.py

The files are committed, so building and testing need no Python. A file holds the model's weights, sequences of token ids with their
logits and log-probs, the gradients of a cross-entropy and, for most models, losses, gradient norms and weights of three AdamW steps. Its
metadata holds the model's config.json and the settings. tests/model/parity_test.cc reads the files, tests/state/hf_folder_test.cc the folder.
bf16_logprobs.json holds the log-probs of the same models in bfloat16; `make_fixtures.py bf16` writes it alone.
"""

import contextlib
import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from fixture_losses import pad, total_loss, write_fixture

VOCAB, LENGTHS, STEPS = 40, (50, 33), 3
SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "bos_token_id": None, "eos_token_id": None,
    "attn_implementation": "eager",
}
# With a small eps, weights whose gradient is only rounding noise would take full steps in a random direction.
UPDATE = {
    "prompt": 5, "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.98, "adam_eps": 1e-4, "weight_decay": 0.1, "max_grad_norm": 1.0,
    "temperature": 0.7,
}
EVERY_TARGET = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def qwen3(**changes) -> Qwen3Config:
    return Qwen3Config(**(SHAPE | {"head_dim": 16} | changes))


def qwen2(**changes) -> Qwen2Config:
    return Qwen2Config(**(SHAPE | changes))


# Name, model, loss of the three steps (None: no steps), LoRA settings.
CASES = [
    ("qwen3_tied", qwen3(num_attention_heads=4, num_key_value_heads=2), {"kind": "regular"}, None),
    ("qwen3_untied", qwen3(head_dim=32, tie_word_embeddings=False),
     {"kind": "dual_clip", "reduction": "sequence_mean", "clip_ratio_c": 1.5, "entropy_weight": 0.02, "tis_cap": 1.2}, None),
    ("qwen3_head48", qwen3(head_dim=48, num_hidden_layers=1), None, None),
    ("qwen3_head128", qwen3(head_dim=128, num_hidden_layers=1), None, None),
    ("qwen3_yarn",
     qwen3(head_dim=64, num_hidden_layers=1, rope_parameters={
         "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 32}),
     {"kind": "cispo", "cispo_eps_clip_low": 0.2, "cispo_eps_clip_high": 0.2}, None),
    ("qwen2_tied", qwen2(), {"kind": "sapo", "reduction": "sequence_mean", "kl_weight": 0.5, "kl_estimator": "k2"}, None),
    ("qwen2_untied", qwen2(hidden_size=48, num_attention_heads=3, num_hidden_layers=1, tie_word_embeddings=False),
     {"kind": "gspo", "reduction": "sequence_mean"}, None),
    ("qwen3_lora", qwen3(num_attention_heads=4, num_key_value_heads=2),
     {"kind": "reinforce", "reduction": "seq_mean_token_sum_norm", "max_seq_len": 60, "kl_weight": 0.1, "entropy_weight": 0.05},
     {"rank": 4, "alpha": 8.0, "targets": EVERY_TARGET}),
    ("qwen2_lora", qwen2(), {"kind": "cross_entropy"}, {"rank": 3, "alpha": 4.0, "targets": ["q_proj", "v_proj", "down_proj"]}),
]


def tiny_model(config, lora):
    model = (Qwen3ForCausalLM if config.model_type == "qwen3" else Qwen2ForCausalLM)(config).float()
    if lora is not None:
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=lora["rank"], lora_alpha=lora["alpha"], target_modules=lora["targets"], lora_dropout=0.0, bias="none"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.2)
    return model


def plain_name(name: str) -> str:
    """The Hugging Face name of a parameter that PEFT has wrapped."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(".default.", ".")


def logprobs_and_entropies(model, sequence, temperature: float):
    logits = model(sequence[None, :-1]).logits[0] / temperature
    every = torch.log_softmax(logits, -1)
    return every.gather(1, sequence[1:, None])[:, 0], -(every.exp() * every).sum(-1)


def cross_entropy(model, sequences) -> torch.Tensor:
    targets = sum(len(sequence) - 1 for sequence in sequences)
    return -sum(logprobs_and_entropies(model, sequence, 1.0)[0].sum() for sequence in sequences) / targets


def behind_prompt(model, sequences):
    """Log-probs and entropies of the tokens after the prompt, one tensor per sequence."""
    pairs = [logprobs_and_entropies(model, sequence, UPDATE["temperature"]) for sequence in sequences]
    first = UPDATE["prompt"] - 1
    return [pair[0][first:] for pair in pairs], [pair[1][first:] for pair in pairs]


def steps(model, sequences, loss_settings: dict, trained: dict, adapters: bool) -> dict:
    arrays = {}
    with torch.no_grad():
        logprobs = behind_prompt(model, sequences)[0]
        # The reference is the initial model: without its adapters, if it has any.
        with model.disable_adapter() if adapters else contextlib.nullcontext():
            reference = behind_prompt(model, sequences)[0]
    imitation = loss_settings["kind"] == "cross_entropy"
    old = [torch.zeros_like(row) if imitation else row + 0.3 * torch.randn(len(row)) for row in logprobs]
    rollout = [row + 0.2 * torch.randn(len(row)) for row in old]
    advantages = [torch.rand(len(row)) if imitation else torch.randn(len(row)) for row in logprobs]
    for name, rows in (("old_logprobs", old), ("rollout_logprobs", rollout), ("advantages", advantages)):
        arrays |= {f"{name}.{i}": row for i, row in enumerate(rows)}
    mask = pad([torch.ones(len(row)) for row in old])
    decayed = [v for n, v in trained.items() if v.dim() == 2 and "embed_tokens" not in n]
    others = [v for n, v in trained.items() if v.dim() == 1 or "embed_tokens" in n]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": UPDATE["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=UPDATE["learning_rate"], betas=(UPDATE["beta1"], UPDATE["beta2"]), eps=UPDATE["adam_eps"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logprobs, entropies = behind_prompt(model, sequences)
        loss = total_loss(loss_settings, mask, pad(logprobs), pad(old), pad(advantages), pad(rollout), pad(reference), pad(entropies))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(trained.values()), UPDATE["max_grad_norm"]))
        losses.append(loss.detach())
        optimizer.step()
    arrays |= {"updated." + name: value for name, value in trained.items()}
    return arrays | {"update.losses": torch.stack(losses), "update.grad_norms": torch.stack(norms)}


def fixture(config, loss_settings, lora) -> tuple[dict, dict]:
    model = tiny_model(config, lora)
    named = {plain_name(name): value for name, value in model.named_parameters()}  # lists tied embeddings once
    trained = {name: value for name, value in named.items() if value.requires_grad}
    arrays = {"weights." + name: value.detach().clone() for name, value in named.items()}
    sequences = [torch.randint(0, VOCAB, (length,)) for length in LENGTHS]
    for i, sequence in enumerate(sequences):
        arrays[f"tokens.{i}"] = sequence.to(torch.int32)
        arrays[f"logits.{i}"] = model(sequence[None]).logits[0]
        arrays[f"logprobs.{i}"] = logprobs_and_entropies(model, sequence, 1.0)[0]
    loss = cross_entropy(model, sequences)
    loss.backward()
    arrays["cross_entropy"] = loss[None]
    arrays |= {"gradient." + name: value.grad.clone() for name, value in trained.items()}
    settings = {"gradients": len(trained)} | ({"lora": lora} if lora else {})
    if loss_settings is not None:
        loss_settings = {"reduction": "token_mean"} | loss_settings
        arrays |= steps(model, sequences, loss_settings, trained, lora is not None)
        settings["update"] = UPDATE | {"loss": loss_settings}
    return arrays, settings


def write_folder() -> None:
    """Writes a bfloat16 model in several shards, and the fp32 logits of the written model to a file beside it."""
    torch.manual_seed(2)
    folder = pathlib.Path(__file__).parent.parent / "tests/fixtures/qwen3_sharded"
    shutil.rmtree(folder, ignore_errors=True)
    model = tiny_model(qwen3(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False), None)
    model.generation_config.eos_token_id = [5, 2]
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="20KB")
    written = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokens = torch.randint(0, VOCAB, (24,))
    with torch.no_grad():
        logits = written(tokens[None]).logits[0]
    rows = [[float(f"{value:.9g}") for value in row] for row in logits.tolist()]
    text = json.dumps({"tokens": tokens.tolist(), "logits": rows}, separators=(",", ":"))
    folder.with_name(folder.name + ".logits.json").write_text(text + "\n")


def write_bf16() -> None:
    """Writes the log-probs of the fixtures' models in bfloat16, by name: for each sequence those of its tokens but the first."""
    folder, results = pathlib.Path(__file__).parent.parent / "tests/fixtures", {}
    for name, config, _, lora in CASES:
        arrays = load_file(folder / f"{name}.safetensors")
        model = tiny_model(config, lora)
        with torch.no_grad():
            for parameter, value in model.named_parameters():
                value.copy_(arrays["weights." + plain_name(parameter)])
            model.to(torch.bfloat16)
            rows = [logprobs_in_fp32(model, arrays[f"tokens.{i}"].long()) for i in range(len(LENGTHS))]
        results[name] = [[float(f"{value:.9g}") for value in row.tolist()] for row in rows]
    (folder / "bf16_logprobs.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")


def logprobs_in_fp32(model, sequence) -> torch.Tensor:
    every = torch.log_softmax(model(sequence[None, :-1]).logits[0].float(), -1)
    return every.gather(1, sequence[1:, None])[:, 0]


def config_json(config) -> str:
    return json.dumps({key: value for key, value in json.loads(config.to_json_string(use_diff=False)).items() if value is not None})


def main() -> None:
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    for index, (name, config, loss_settings, lora) in enumerate(CASES):
        torch.manual_seed(3 + index)
        arrays, settings = fixture(config, loss_settings, lora)
        write_fixture(name, arrays, {
            "config": config_json(config), "settings": json.dumps(settings), "versions": json.dumps(versions)})
    write_folder()


if __name__ == "__main__":
    if sys.argv[1:] == ["bf16"]:
        write_bf16()
    else:
        main()
        write_bf16()
