"""The ledger of claims: what four source documents state about positions, the run that tests it, and the verdict.

``*.toml`` has one file per document with an entry per claim, and ``fixed.json`` the hash and date of every rule.
"""
