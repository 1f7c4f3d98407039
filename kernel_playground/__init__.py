"""The command kernel-playground: folders of one's own, JupyterLab on them, and the tools."""
