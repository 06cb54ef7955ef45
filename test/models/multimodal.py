"""Writes multimodal.json: log-probs of text by multimodal models whose language models have the weights of native/tests/fixtures.

Needs torch and transformers (made with 5.16.1): python test/models/multimodal.py > test/models/multimodal.json
"""

import json
import re

import torch
from safetensors import safe_open
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 2}
SHARED = [
    *["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"],
    *["max_position_embeddings", "rms_norm_eps", "rope_parameters", "tie_word_embeddings", "head_dim", "layer_types"],
]


def language_name(name):
    inner = re.match(r"^model\.language_model\.(.+)$", name)
    return f"model.{inner[1]}" if inner else name


def described(fixture, model_class, config_class, mrope):
    with safe_open(f"native/tests/fixtures/{fixture}.safetensors", "pt") as file:
        plain = json.loads(file.metadata()["config"])
        weights = {name[8:]: file.get_tensor(name) for name in file.keys() if name.startswith("weights.")}
        tokens = [file.get_tensor(f"tokens.{i}").long() for i in range(2)]
        known = [file.get_tensor(f"logprobs.{i}") for i in range(2)]
    text = {key: plain[key] for key in SHARED if key in plain}
    text.update({"bos_token_id": None, "eos_token_id": 2})
    text["rope_parameters"] = {**text["rope_parameters"], **mrope}
    vision = {**VISION, "out_hidden_size": plain["hidden_size"]}
    if config_class is Qwen2VLConfig:
        vision = {"depth": 1, "embed_dim": 8, "num_heads": 2, "hidden_size": plain["hidden_size"], "patch_size": 2}
    if config_class is Qwen3VLConfig:
        vision["deepstack_visual_indexes"] = [0]
    torch.manual_seed(1)
    config = config_class(text_config=text, vision_config=vision, tie_word_embeddings=plain["tie_word_embeddings"])
    model = model_class(config).float().eval()
    state = model.state_dict()
    for name in state:
        if not name.startswith("model.visual."):
            state[name] = weights[language_name(name) if language_name(name) in weights else "model.embed_tokens.weight"]
    model.load_state_dict(state)
    logprobs = []
    for sequence, expected in zip(tokens, known, strict=True):
        with torch.no_grad():
            all_logprobs = torch.log_softmax(model(input_ids=sequence[None]).logits[0].double(), -1)
        found = all_logprobs[:-1].gather(1, sequence[1:, None])[:, 0]
        assert found.shape == expected.shape and (found - expected).abs().max() < 1e-4, (found, expected)
        logprobs.append([round(value, 6) for value in found.tolist()])
    written = json.loads(config.to_json_string(use_diff=True))
    return {"fixture": fixture, "config": written, "logprobs": logprobs}


INTERLEAVED = {"mrope_interleaved": True}
print(
    json.dumps(
        [
            described("qwen3_tied", Qwen3VLForConditionalGeneration, Qwen3VLConfig, {"mrope_section": [4, 2, 2], **INTERLEAVED}),
            described("qwen3_yarn", Qwen3VLForConditionalGeneration, Qwen3VLConfig, {"mrope_section": [4, 2, 2], **INTERLEAVED}),
            described("qwen2_tied", Qwen2VLForConditionalGeneration, Qwen2VLConfig, {"mrope_section": [4, 2, 2]}),
            described("qwen2_untied", Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLConfig, {"mrope_section": [4, 2, 2]}),
        ],
    )
)
