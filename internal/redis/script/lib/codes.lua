-- The first number of a reply is its code. Clients decide by it alone, never by a text.
local OK, HELD, LOST, FOREIGN, EXPIRED, MISMATCH, QUARANTINE, UNFIT = 1, 2, 3, 4, 5, 6, 7, 8
