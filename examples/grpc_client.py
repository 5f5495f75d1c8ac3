"""Asks a cluster with nothing but the gRPC stubs. Start one with `kev up`, then run:

python examples/grpc_client.py [127.0.0.1:50051] ["question" ...]
"""

import sys

import grpc

from kev.v1 import question_pb2, router_pb2, router_pb2_grpc

QUESTIONS = ["What is the capital of France?", "请问怎么申请退款？"]


def main() -> None:
    """Submits a batch with Ask and prints its frames: pieces of text, and at a slot's end its record."""
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
    questions = [question_pb2.Question(text=text, max_tokens=40) for text in sys.argv[2:] or QUESTIONS]
    batch = question_pb2.Batch(questions=questions, isolation=question_pb2.ISOLATION_STRICT)
    with grpc.insecure_channel(address) as channel:
        router = router_pb2_grpc.RouterServiceStub(channel)
        for reply in router.Ask(router_pb2.AskRequest(batch=batch)):
            frame = reply.frame
            if frame.text:
                print(f"slot {frame.slot} {frame.channel} +{frame.text_offset}: {frame.text!r}")
            if frame.HasField("result"):
                audit = frame.result.audit
                print(f"slot {frame.slot} done: {frame.result.text!r}")
                print(f"  channel {audit.channel}, bucket {audit.bucket}, branch {audit.branch},", end=" ")
                print(f"{audit.completion_tokens} tokens in {audit.elapsed_ms:.0f} ms")


if __name__ == "__main__":
    main()
