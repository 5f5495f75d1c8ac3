"""Buckets by meaning: by a question's most telling word, or by a codebook fitted to the deployment's own questions."""
