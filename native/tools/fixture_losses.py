"""Every loss of the engine in PyTorch, in the form that SkyRL's users know: on padded samples with a mask, differentiated by autograd.

As a program, it writes native/tests/fixtures/losses.safetensors; tests/train/loss_parity_test.cc compares native/src/train/loss.cc with
that file. make_fixtures.py imports these losses for its training steps, and says how to run both.
"""

import json
import pathlib

import torch
from safetensors.torch import save

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
DEFAULTS = {
    "reduction": "token_mean", "max_seq_len": 64, "eps_clip_low": 0.2, "eps_clip_high": 0.28, "clip_ratio_c": 3.0,
    "cispo_eps_clip_low": 1.0, "cispo_eps_clip_high": 5.0, "sapo_tau_pos": 1.0, "sapo_tau_neg": 1.05,
    "kl_weight": 0.0, "kl_estimator": "k3", "entropy_weight": 0.0, "tis_cap": 0.0,
}


def write_fixture(name: str, arrays: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Writes equal bytes for equal arrays, which `save` does not: it writes the metadata in random order."""
    data = save({key: value.detach().contiguous().clone() for key, value in arrays.items()}, metadata)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    (FOLDER / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data[end:])


def pad(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def masked_mean(values: torch.Tensor, mask: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    return (values * mask).sum(dim) / mask.sum(dim)


def policy_losses(settings: dict, logprobs, old, advantages, mask) -> torch.Tensor:
    """One loss for each token, [samples, length]."""
    kind = settings["kind"]
    if kind in ("cross_entropy", "reinforce"):
        return -advantages * logprobs
    log_ratio = logprobs - old
    if kind == "gspo":
        # GSPO-token: the value is the sample's ratio, and the gradient goes to the token's log-prob.
        mean = masked_mean(log_ratio, mask, 1)[:, None].detach()
        log_ratio = logprobs - logprobs.detach() + mean
    ratio = log_ratio.exp()
    if kind == "cispo":
        weight = ratio.detach().clamp(1 - settings["cispo_eps_clip_low"], 1 + settings["cispo_eps_clip_high"])
        return -advantages * weight * logprobs
    if kind == "sapo":
        tau = torch.where(advantages > 0, torch.full_like(advantages, settings["sapo_tau_pos"]),
                          torch.full_like(advantages, settings["sapo_tau_neg"]))
        return -advantages * torch.sigmoid(tau * (ratio - 1)) * (4 / tau)
    assert kind in ("regular", "dual_clip", "gspo"), kind
    clipped = ratio.clamp(1 - settings["eps_clip_low"], 1 + settings["eps_clip_high"])
    losses = -torch.minimum(ratio * advantages, clipped * advantages)
    if kind == "dual_clip":
        bound = -advantages * settings["clip_ratio_c"]
        losses = torch.where(advantages < 0, torch.minimum(bound, losses), losses)
    return losses


def reduce(losses, mask, settings: dict) -> torch.Tensor:
    if settings["reduction"] == "token_mean":
        return masked_mean(losses, mask)
    if settings["reduction"] == "sequence_mean":
        return masked_mean(losses, mask, 1).mean()
    assert settings["reduction"] == "seq_mean_token_sum_norm"
    return ((losses * mask).sum(1) / settings["max_seq_len"]).mean()


def importance_weights(settings: dict, old, rollout) -> torch.Tensor:
    return (old - rollout).exp().clamp(max=settings["tis_cap"]).detach()


def kl_estimates(settings: dict, logprobs, reference) -> torch.Tensor:
    difference = logprobs - reference
    if settings["kl_estimator"] == "k1":
        return difference
    if settings["kl_estimator"] == "k2":
        return 0.5 * difference.square()
    return (-difference).exp() - 1 + difference


def total_loss(settings: dict, mask, logprobs, old, advantages, rollout=None, reference=None, entropies=None) -> torch.Tensor:
    """The reduced policy loss, plus KL (mean over samples of their token means), minus entropy (mean over tokens), both weighted."""
    settings = DEFAULTS | settings
    losses = policy_losses(settings, logprobs, old, advantages, mask)
    if settings["tis_cap"] > 0:
        losses = losses * importance_weights(settings, old, rollout)
    loss = reduce(losses, mask, settings)
    if settings["kl_weight"] != 0:
        loss = loss + settings["kl_weight"] * masked_mean(kl_estimates(settings, logprobs, reference), mask, 1).mean()
    if settings["entropy_weight"] != 0:
        loss = loss - settings["entropy_weight"] * masked_mean(entropies, mask)
    return loss


def report(settings: dict, mask, logprobs, old, advantages, rollout, reference, entropies) -> list[torch.Tensor]:
    """The values that the engine reports besides the loss, in the order of its LossReport: clipped … tis_weight."""
    settings = DEFAULTS | settings
    kind = settings["kind"]
    ratio = (logprobs - old).exp() if kind != "cross_entropy" else torch.ones_like(logprobs)
    difference = (logprobs - old).abs() if kind != "cross_entropy" else torch.zeros_like(logprobs)
    clipped = torch.zeros_like(logprobs)
    if kind == "cispo":
        weight = ratio.clamp(1 - settings["cispo_eps_clip_low"], 1 + settings["cispo_eps_clip_high"])
        clipped = (weight != ratio).double()
    elif kind in ("regular", "dual_clip", "gspo"):
        # A target counts as clipped if its loss does not depend on its log-prob.
        leaf = logprobs.detach().requires_grad_()
        gradient, = torch.autograd.grad((policy_losses(settings, leaf, old, advantages, mask) * mask).sum(), leaf)
        clipped = ((gradient == 0) & (advantages != 0)).double()
    zero = torch.zeros((), dtype=torch.float64)
    return [
        (clipped * mask).sum(), (ratio * mask).sum(), (difference * mask).max(),
        (kl_estimates(settings, logprobs, reference) * mask).sum() if settings["kl_weight"] != 0 else zero,
        (entropies * mask).sum() if settings["entropy_weight"] != 0 else zero,
        (importance_weights(settings, old, rollout) * mask).sum() if settings["tis_cap"] > 0 else zero,
    ]


def cases() -> list[dict]:
    kinds = ("regular", "dual_clip", "gspo", "cispo", "sapo", "reinforce", "cross_entropy")
    reductions = ("token_mean", "sequence_mean", "seq_mean_token_sum_norm")
    listed = [{"advantages": advantages, "loss": {"kind": kind, "reduction": reduction, "max_seq_len": 64}}
              for kind in kinds for reduction in reductions for advantages in ("by_sample", "by_token")]

    def add(kind: str, **settings):
        listed.append({"advantages": "by_token", "loss": {"kind": kind, "reduction": "token_mean"} | settings})

    for estimator in ("k1", "k2", "k3"):
        add("regular", kl_weight=0.1, kl_estimator=estimator)
        add("gspo", reduction="sequence_mean", kl_weight=0.02, kl_estimator=estimator)
        add("cross_entropy", kl_weight=0.5, kl_estimator=estimator)
    for kind in kinds[:-1]:
        add(kind, tis_cap=1.2)
    add("regular", eps_clip_low=0.02, eps_clip_high=0.5)
    add("dual_clip", clip_ratio_c=1.3)
    add("gspo", reduction="sequence_mean", eps_clip_low=3e-4, eps_clip_high=4e-4)
    add("cispo", cispo_eps_clip_low=0.1, cispo_eps_clip_high=0.3)
    add("sapo", reduction="sequence_mean", sapo_tau_pos=2.0, sapo_tau_neg=0.5)
    add("reinforce", entropy_weight=0.01)
    add("cross_entropy", reduction="sequence_mean", entropy_weight=0.05)
    for kind in kinds[:-1]:
        add(kind, reduction="seq_mean_token_sum_norm", max_seq_len=40, kl_weight=0.3, entropy_weight=0.2, tis_cap=2.0)
    return listed


def inputs() -> dict[str, list[torch.Tensor]]:
    """fp32 values, as the engine gets them. Ratios lie on both sides of every clip, and some lie far outside."""
    torch.manual_seed(11)
    lengths = (1, 9, 14, 3, 20, 6, 11)
    values = {name: [] for name in ("logprobs", "old_logprobs", "rollout_logprobs", "reference_logprobs", "entropies",
                                    "advantages.by_sample", "advantages.by_token")}
    for index, length in enumerate(lengths):
        logprobs = -0.02 - 3 * torch.rand(length)
        old = logprobs + 0.3 * torch.randn(length)
        if index in (2, 4):
            old[::5] += torch.tensor(2.0 if index == 2 else -2.0)
        values["logprobs"].append(logprobs)
        values["old_logprobs"].append(old)
        values["rollout_logprobs"].append(old + 0.3 * torch.randn(length))
        values["reference_logprobs"].append(logprobs + 0.5 * torch.randn(length))
        values["entropies"].append(3 * torch.rand(length))
        values["advantages.by_sample"].append(torch.full((length,), (0.0, 1.0, -0.7, 2.0, 0.4, -1.5, -0.2)[index]))
        values["advantages.by_token"].append(torch.randn(length))
    return values


def check_gspo(padded: dict, mask) -> None:
    """Checks that with one advantage per sample, GSPO-token has the gradient of GSPO, which differentiates the sample's ratio."""
    settings = DEFAULTS | {"kind": "gspo", "reduction": "sequence_mean"}
    gradients = []
    for direct in (False, True):
        leaf = padded["logprobs"].clone().requires_grad_()
        if direct:
            ratio, advantages = masked_mean(leaf - padded["old_logprobs"], mask, 1).exp(), padded["advantages.by_sample"][:, 0]
            clipped = ratio.clamp(1 - settings["eps_clip_low"], 1 + settings["eps_clip_high"])
            loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        else:
            loss = total_loss(settings, mask, leaf, padded["old_logprobs"], padded["advantages.by_sample"])
        gradients.append(torch.autograd.grad(loss, leaf)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-14)


def main() -> None:
    flat = inputs()
    padded = {name: pad([row.double() for row in rows]) for name, rows in flat.items()}
    mask = pad([torch.ones(len(row), dtype=torch.float64) for row in flat["logprobs"]])
    check_gspo(padded, mask)
    arrays = {name: torch.cat(rows) for name, rows in flat.items()}
    arrays["samples"] = torch.cat([torch.full((len(row),), i, dtype=torch.int32) for i, row in enumerate(flat["logprobs"])])
    for index, case in enumerate(cases()):
        leaves = {name: padded[name].clone().requires_grad_() for name in ("logprobs", "entropies")}
        rest = (padded["old_logprobs"], padded["advantages." + case["advantages"]], padded["rollout_logprobs"],
                padded["reference_logprobs"])
        loss = total_loss(case["loss"], mask, leaves["logprobs"], *rest, leaves["entropies"])
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        reported = report(case["loss"], mask, padded["logprobs"], *rest, padded["entropies"])
        prefix, kept = f"case.{index}.", mask.bool()
        arrays[prefix + "derivatives"] = gradients[0][kept]
        if gradients[1] is not None:
            arrays[prefix + "entropy_derivatives"] = gradients[1][kept]
        arrays[prefix + "report"] = torch.stack([loss.detach(), *reported])
    write_fixture("losses", arrays, {"cases": json.dumps(cases()), "torch": torch.__version__})


if __name__ == "__main__":
    main()
