"""What people ask about routing: where a question would go, why one went where it went, how buckets lie."""
