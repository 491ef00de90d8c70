"""What a gradient gives away: attacks that rebuild a picture from it, and how good the rebuilt picture is."""
