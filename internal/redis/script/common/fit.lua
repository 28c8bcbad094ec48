if unfit then return unfit end
