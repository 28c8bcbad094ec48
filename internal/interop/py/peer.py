"""redis-py as a peer: one answer per line of input, yes or no. Argument: the port of the server."""
import sys

import redis
from redis.exceptions import LockError

client = redis.Redis(port=int(sys.argv[1]))
held = {}


def lock(key, ttl):
    held[key] = client.lock(key, timeout=int(ttl) / 1000, blocking=False)
    return held[key].acquire()


def extend(key, ttl):
    return held[key].extend(int(ttl) / 1000, replace_ttl=True)


def unlock(key):
    held[key].release()
    return True


for line in sys.stdin:
    verb, *args = line.split()
    try:
        yes = {"lock": lock, "extend": extend, "unlock": unlock}[verb](*args)
    except LockError:
        yes = False
    print("yes" if yes else "no", flush=True)
