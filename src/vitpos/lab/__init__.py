"""The laboratory: experiments become trained and evaluated cells in folders, and folders become tables."""
