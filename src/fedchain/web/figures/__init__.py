"""Parts of pictures: axes of charts, charts as files, and the members with their links."""
