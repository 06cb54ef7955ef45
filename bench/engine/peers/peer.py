"""Measures PyTorch and transformers on the same models as longhaul-bench (native/tools/bench/sizes.h), in fp32, without TF32.

    peer.py train    [--size 0.85M|6M|60M|0.6B] [--mode eager|compile] [--sequences 32] [--length 128] [--seconds 10] [--threads 2]
    peer.py generate [--size …] [--batches 16,64,256] [--prompt 32] [--new 96] [--seconds 10] [--threads 2]
    peer.py gemm     [--rounds 20] [--threads 2]
    peer.py gpu_rates             the products of longhaul-gpu-rates (native/tools/gpu_rates.cu)

`--device cuda` measures on a GPU.

Prints one JSON object a line, with the keys of longhaul-bench. The last line of `generate` repeats the line of the best batch size.
"""

import argparse
import json
import os
import statistics
import sys
import time

SIZES = {
    "0.85M": {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512},
    "6M": {"num_hidden_layers": 6, "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8,
           "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1024},
    "60M": {"num_hidden_layers": 8, "hidden_size": 768, "intermediate_size": 2240, "num_attention_heads": 12,
            "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192},
    "0.6B": {"num_hidden_layers": 28, "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("--mode", choices=["eager", "compile"], default="eager")
    train.add_argument("--sequences", type=int, default=32)
    train.add_argument("--length", type=int, default=128)
    generate = commands.add_parser("generate")
    generate.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[16, 64, 256])
    generate.add_argument("--prompt", type=int, default=32)
    generate.add_argument("--new", type=int, default=96)
    gemm = commands.add_parser("gemm")
    gemm.add_argument("--rounds", type=int, default=20)
    for command in (train, generate):
        command.add_argument("--size", choices=list(SIZES), default="6M")
        command.add_argument("--seconds", type=float, default=10)
    rates = commands.add_parser("gpu_rates")
    for command in (train, generate, gemm, rates):
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    return parser.parse_args()


def show(**members) -> None:
    print(json.dumps(members), flush=True)


def make_model(size: str):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        **SIZES[size], rms_norm_eps=1e-6, tie_word_embeddings=True, max_position_embeddings=2048, initializer_range=0.02,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        attn_implementation="sdpa",
    )
    torch.manual_seed(1)
    return Qwen3ForCausalLM(config).float().to(args.device)


def finished() -> None:
    """Returns when the device has done its work."""
    if args.device == "cuda":
        torch.cuda.synchronize()


def timed_until(seconds: float, least: int, work) -> list[float]:
    """Calls `work` for `seconds`, and `least` times or more. Returns the seconds of each call."""
    times = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        finished()
        start = time.perf_counter()
        work()
        finished()
        times.append(time.perf_counter() - start)
    return times


def train(args: argparse.Namespace) -> None:
    model = make_model(args.size)
    model.config.use_cache = False
    model.train()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tokens = torch.randint(SIZES[args.size]["vocab_size"], (args.sequences, args.length), device=args.device)
    # The fused step is the fastest one on the CPU.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0, fused=True)
    forward = torch.compile(model, dynamic=False) if args.mode == "compile" else model

    def update() -> None:
        optimizer.zero_grad(set_to_none=True)
        forward(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for _ in range(3):
        update()
    times = timed_until(args.seconds, 3, update)
    count = args.sequences * args.length
    show(bench="train", engine=f"torch-{args.mode}", version=torch.__version__, size=args.size, parameters=parameters,
         threads=args.threads, sequences=args.sequences, length=args.length, updates=len(times),
         tokens_per_second=count / statistics.median(times), best_tokens_per_second=count / min(times))


def generate(args: argparse.Namespace) -> None:
    import transformers

    model = make_model(args.size)
    model.eval()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lines = []
    for batch in args.batches:
        prompts = torch.randint(SIZES[args.size]["vocab_size"], (batch, args.prompt), device=args.device)
        mask = torch.ones_like(prompts)

        def run(new: int) -> None:
            out = model.generate(input_ids=prompts, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                                 max_new_tokens=new, use_cache=True)
            if out.shape[1] != args.prompt + new:
                raise RuntimeError(f"generate stopped after {out.shape[1] - args.prompt} of {new} tokens")

        with torch.inference_mode():
            run(min(8, args.new))
            times = timed_until(args.seconds / len(args.batches), 2, lambda: run(args.new))
        count = batch * args.new
        lines.append(dict(
            bench="generate", engine="transformers", version=transformers.__version__, size=args.size, parameters=parameters,
            threads=args.threads, batch=batch, prompt=args.prompt, new_tokens=args.new, rounds=len(times),
            tokens_per_second=count / statistics.median(times), best_tokens_per_second=count / min(times)))
        show(**lines[-1])
    show(**(max(lines, key=lambda line: line["tokens_per_second"]) | {"best": True}))


def gemm(args: argparse.Namespace) -> None:
    """The matrix products of longhaul-bench's `gemm`: each as in a layer's forward pass, and as in its weight gradient."""
    burst = 2e8 * args.threads  # operations: a few milliseconds
    with torch.inference_mode():
        for m in (64, 256, 512, 2048):
            for outputs, inputs in ((768, 128), (128, 384), (2048, 256), (256, 1024), (1280, 768), (4480, 768), (768, 2240)):
                x, w, dy, dw = torch.rand(m, inputs), torch.rand(outputs, inputs), torch.rand(m, outputs), torch.zeros(outputs, inputs)
                products = {"matmul": lambda: torch.nn.functional.linear(x, w), "weight_gradient": lambda: dw.addmm_(dy.t(), x)}
                flops = 2.0 * m * outputs * inputs
                repeats = max(1, int(burst / flops))
                for kind, product in products.items():
                    product()
                    times = timed_until(0, args.rounds, lambda: [product() for _ in range(repeats)])
                    show(bench="gemm", engine="torch", kind=kind, threads=args.threads, m=m, outputs=outputs, inputs=inputs,
                         gflops=flops * repeats / min(times) / 1e9)


def gpu_rates(args: argparse.Namespace) -> None:
    """Each product as in a forward pass, as in the gradient of its input, and as in the weights' gradient."""
    flops = seconds = 0.0
    with torch.inference_mode():
        for m in (1024, 4096):
            for outputs, inputs in ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151_936, 1024)):
                if outputs > 100_000 and m > 1024:
                    continue
                x, w, dy = (torch.rand(shape, device=args.device) - 0.5 for shape in ((m, inputs), (outputs, inputs), (m, outputs)))
                dw = torch.zeros_like(w)
                once = 2.0 * m * outputs * inputs
                repeats = max(1, int(2e11 / once))
                products = {"forward": lambda: torch.nn.functional.linear(x, w), "backward": lambda: dy @ w,
                            "gradient": lambda: dw.addmm_(dy.t(), x)}
                for kind, product in products.items():
                    product()
                    took = statistics.median(timed_until(0, 5, lambda: [product() for _ in range(repeats)])) / repeats
                    flops, seconds = flops + once, seconds + took
                    show(bench="gpu_rates", engine="torch", kind=kind, m=m, outputs=outputs, inputs=inputs, tflops=once / took / 1e12)
    show(bench="gpu_rates", engine="torch", version=torch.__version__, kind="all products", tflops=flops / seconds / 1e12)


if __name__ == "__main__":
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(args.threads)
    import torch  # reads the variables above

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    try:
        {"train": train, "generate": generate, "gemm": gemm, "gpu_rates": gpu_rates}[args.command](args)
    except Exception as error:  # a failure is a result, too, such as torch.compile without a compiler
        engine = {"train": f"torch-{getattr(args, 'mode', '')}", "generate": "transformers", "gemm": "torch", "gpu_rates": "torch"}[args.command]
        show(bench=args.command, engine=engine, size=getattr(args, "size", None), failed=f"{type(error).__name__}: {error}")
        sys.exit(1)
