"""Contents that blocks and posts name by hash: payloads, parts and knowledge, fetched, kept and handed out."""
