local closed = false -- there is no guard
