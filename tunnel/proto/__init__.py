"""The protocols, without any IO: bytes in, values and bytes out. No asyncio, no sockets, no clock.

Both sides of the edge are strict. A message is parsed in full or refused, and what goes on is built anew from what was
parsed: no framing byte of one connection is ever copied to the other unread.
"""
