local along = {id = '', keep = 0} -- nobody comes along with this release
