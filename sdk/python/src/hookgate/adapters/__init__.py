"""Puts agents of other libraries behind the gateway.

Each module needs its library, which the extra of the same name installs: `pip install "hookgate[langchain]"`.
"""
