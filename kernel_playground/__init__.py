"""The command kernel-playground: creates playground folders, and starts JupyterLab and tools."""
