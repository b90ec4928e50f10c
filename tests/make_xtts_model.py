"""Makes a tiny XTTS model with random weights: noise for speech, through the real code.

    .venv-audio/bin/python tests/make_xtts_model.py FOLDER

Writes config.json, vocab.json and model.pth (92 MB: no field of the configuration reaches the vocoder's width) in half
a second. Runs in the environment of `envs/audio-cpu.txt`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SMALL = {
    "gpt_layers": 1,
    "gpt_n_model_channels": 64,
    "gpt_n_heads": 2,
    "gpt_max_audio_tokens": 40,
    "gpt_max_text_tokens": 402,
    "gpt_max_prompt_tokens": 70,
    "gpt_num_audio_tokens": 66,
    "gpt_start_audio_token": 64,
    "gpt_stop_audio_token": 65,
    "gpt_use_perceiver_resampler": True,
    "decoder_input_dim": 64,
}


def write_vocabulary(path: Path) -> None:
    """A byte-pair vocabulary of the letters, with the marks that XTTS expects."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    marks = ["[STOP]", "[UNK]", "[SPACE]", "[en]", "[START]"]
    trainer = BpeTrainer(special_tokens=marks, vocab_size=120, initial_alphabet=list("abcdefghijklmnopqrstuvwxyz'.,?!"))
    tokenizer.train_from_iterator(["where does it hurt", "since this morning", "i have a pain in my chest"], trainer)
    tokenizer.save(str(path))


def main(folder: Path, seed: int = 1) -> None:
    """Write the model."""
    import torch
    from TTS.tts.configs.xtts_config import XttsConfig
    from TTS.tts.layers.xtts.tokenizer import VoiceBpeTokenizer
    from TTS.tts.models.xtts import Xtts

    folder.mkdir(parents=True, exist_ok=True)
    write_vocabulary(folder / "vocab.json")
    config = XttsConfig()
    config.model_args.tokenizer_file = str(folder / "vocab.json")
    for key, value in SMALL.items():
        setattr(config.model_args, key, value)
    torch.manual_seed(seed)
    tokenizer = VoiceBpeTokenizer(vocab_file=folder / "vocab.json")
    model_args = config.model_args
    model_args.gpt_number_text_tokens = tokenizer.get_number_tokens()
    model_args.gpt_start_text_token = tokenizer.tokenizer.token_to_id("[START]")
    model_args.gpt_stop_text_token = tokenizer.tokenizer.token_to_id("[STOP]")
    model = Xtts(config)
    model_args.tokenizer_file = ""
    config.save_json(folder / "config.json")
    # A plain dictionary, because the package reads it with weights_only.
    plain = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    torch.save({"model": model.state_dict(), "config": plain}, folder / "model.pth")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
