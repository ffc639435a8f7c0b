"""What hosts, edges and control say on a connection before it is a plain byte pipe. Standard library only; see SPEC.md."""
