"""Speech: pooled dialogues as two-channel audio, by engines that share one protocol."""
