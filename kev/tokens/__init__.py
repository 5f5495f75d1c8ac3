"""Tokenizer, chat template and detokenizer. No torch, no service."""
