local plain = not ARGV[6] or ARGV[6] == 'x'
