"""Celery: acks_late, no results; prefork with one child, or a pool of threads."""

from celery import Celery
from marking import URL, mark

app = Celery("bench", broker=URL)
app.conf.update(task_acks_late=True, task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="bench.job")
def job(sent_ns: int) -> None:
    mark(sent_ns)


def send(sent_ns: int) -> None:
    job.delay(sent_ns)


def command(concurrency: int) -> list[str]:
    pool = "prefork" if concurrency == 1 else "threads"
    return ["celery", "-A", "celery_app", "worker", "-c", str(concurrency), "-P", pool, "-l", "ERROR"]
