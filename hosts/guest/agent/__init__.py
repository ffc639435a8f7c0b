"""The guest agent: runs inside every machine as root, starts and watches the app, and answers the host on TCP port 1.

Only what starts fast is imported here: under TCG a module that takes 5 ms on the host adds 50 ms to every cold boot.
Hence plain classes with slots and no dataclasses, typing, subprocess or asyncio in this package.
"""
