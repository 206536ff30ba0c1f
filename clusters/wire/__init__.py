"""Raw, authenticated connections to brokers: whole record batches in, whole record batches out.

kio registers its types with hypothesis when that is installed, which costs every process that connects a third of a
second and a `.hypothesis` folder where it runs. It is kept from that, without hiding hypothesis from anybody else.
"""

import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
