"""Settings of libraries that have to be there before they are imported."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Otherwise, importing it asks the network.
