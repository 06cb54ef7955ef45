"""Writes the parity fixtures of native/tests/maths/fixtures: what PyTorch and transformers compute for tiny Qwen3 models.

    python3 -m venv /tmp/fixtures && /tmp/fixtures/bin/pip install torch==2.15.0 transformers==5.23.0
    /tmp/fixtures/bin/python native/tools/gen_fixtures.py

The files are committed, so building and testing need neither. Format: for each array a line `name count`, then `count`
little-endian float32.
"""

import pathlib

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "maths" / "fixtures"
VOCAB, TEMPERATURE, LEARNING_RATE, WEIGHT_DECAY, CLIP_LOW, CLIP_HIGH = 40, 0.7, 1e-2, 0.1, 0.2, 0.28


def tiny_model(tied: bool) -> Qwen3ForCausalLM:
    torch.manual_seed(3 + tied)
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, tie_word_embeddings=tied, max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, attn_implementation="eager")
    model = Qwen3ForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.2)
    return model


def logprobs(model, sequence, temperature):
    logits = model(sequence[None, :-1]).logits[0] / temperature
    return torch.log_softmax(logits, -1).gather(1, sequence[1:, None])[:, 0]


def clipped_loss(model, sequences, old, advantages):
    total, count = 0, 0
    for sequence, before, advantage in zip(sequences, old, advantages):
        ratio = (logprobs(model, sequence, TEMPERATURE) - before).exp()
        total = total - torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantage).sum()
        count += len(before)
    return total / count


def fixture(tied: bool) -> dict:
    model = tiny_model(tied)
    named = dict(model.named_parameters())  # lists tied embeddings once
    arrays = {"weights." + name: value.detach().clone() for name, value in named.items()}
    sequences = [torch.randint(0, VOCAB, (length,)) for length in (50, 33)]
    for i, sequence in enumerate(sequences):
        arrays[f"tokens.{i}"] = sequence
        arrays[f"logits.{i}"] = model(sequence[None]).logits[0]
        arrays[f"logprobs.{i}"] = logprobs(model, sequence, 1.0)
    targets = sum(len(sequence) - 1 for sequence in sequences)
    loss = -sum(logprobs(model, sequence, 1.0).sum() for sequence in sequences) / targets
    loss.backward()
    arrays["cross_entropy"] = loss
    for name, value in named.items():
        arrays["gradient." + name] = value.grad.clone()

    old = [logprobs(model, s, TEMPERATURE).detach() + 0.3 * torch.randn(len(s) - 1) for s in sequences]
    advantages = [torch.randn(len(before)) for before in old]
    for i in range(len(sequences)):
        arrays[f"old_logprobs.{i}"], arrays[f"advantages.{i}"] = old[i], advantages[i]
    decayed = [v for n, v in named.items() if v.dim() == 2 and "embed_tokens" not in n]
    others = [v for n, v in named.items() if v.dim() == 1 or "embed_tokens" in n]
    # A large eps keeps weights whose gradient is rounding noise from taking full steps in its direction.
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-4)
    losses, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = clipped_loss(model, sequences, old, advantages)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        losses.append(loss.detach())
        optimizer.step()
    arrays["clipped_losses"], arrays["grad_norms"] = torch.stack(losses), torch.stack(norms)
    for name, value in named.items():
        arrays["updated." + name] = value
    return arrays


def main() -> None:
    torch.set_num_threads(1)
    for tied in (True, False):
        with open(FOLDER / f"qwen3_{'tied' if tied else 'untied'}.bin", "wb") as file:
            for name, value in fixture(tied).items():
                flat = value.detach().float().contiguous().numpy().astype("<f4").tobytes()
                file.write(f"{name} {len(flat) // 4}\n".encode() + flat)


if __name__ == "__main__":
    main()
