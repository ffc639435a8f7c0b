import time

print("working hard, listening nowhere", flush=True)
while True:
    time.sleep(60)
