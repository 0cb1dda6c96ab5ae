"""The token ids that mean the same to tokenizer, model and search."""

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
SPECIAL_SYMBOLS = ("<pad>", "<unk>", "<s>", "</s>")
