raise SystemExit("only the process `web` is started")
