package main

// Package redlock: what a majority rests on. The simulation finds most of them; these are the tests that name the reason.
func init() {
	mutants = append(mutants, []mutant{
		{
			"redlock: half of an even number is a majority", "redlock/redlock.go",
			"quorum: len(nodes)/2 + 1", "quorum: (len(nodes) + 1) / 2", "./redlock", "Minority",
		},
		{
			"redlock: a minority's grants are kept", "redlock/acquire.go",
			"a.queue(i, func() { a.giveBack(a.spell, i, a.claim) })", "_ = l", "./redlock", "Minority|MajorityDown",
		},
		{
			"redlock: a release overtakes its acquire", "redlock/lane.go",
			"l.busy {\n\t\tl.line", "false && l.busy {\n\t\tl.line", "./redlock", "Overtakes",
		},
		{
			"redlock: a release without answer is forgotten", "redlock/release.go",
			"		u.owe(i, on)\n\t\treturn\n", "		return\n", "./redlock", "Owed",
		},
		{
			"redlock: a token is not written back", "redlock/token.go",
			"if n.stored != 0 && n.stored >= t.highest {", "if n.stored != 0 {", "./redlock", "WrittenBack",
		},
		{
			"redlock: a hung node is asked for ever", "redlock/node.go",
			"n.sick.CompareAndSwap(false, true)", "n.sick.CompareAndSwap(true, true)", "./redlock", "Hung",
		},
		{
			"redlock: nodes are not filled in", "redlock/renew.go",
			"			u.fillIn(spell, c)\n", "", "./redlock", "RenewBy",
		},
		{
			"redlock: a minority can renew", "redlock/votes.go",
			"case q.votes.yes >= q.red.quorum:", "case q.votes.yes > 0:", "./redlock", "RenewBy",
		},
		{
			"redlock: claims that meet go away", "redlock/acquire.go",
			"if !a.met ||", "if true ||", "./redlock", "Meet",
		},
	}...)
}

// Package redlock: what refuses a configuration.
func init() {
	mutants = append(mutants, []mutant{
		{
			"redlock: other lists of nodes are not noticed", "redlock/acquire.go",
			`list != "" && !a.repeat`, `false && list != ""`, "./redlock", "List",
		},
		{
			"redlock: a restarted server is taken for another", "redlock/list.go",
			"		r.lookAgain(ctx)\n", "", "./redlock", "List",
		},
		{
			"redlock: a lease that drift makes too long is shortened", "redlock/config.go",
			"lease > backend.MaxTTL", "lease > 2*backend.MaxTTL", "./redlock", "Drift",
		},
	}...)
}

// Package redlock: which servers its nodes are.
func init() {
	mutants = append(mutants, []mutant{
		{
			"redlock: one server twice is two", "redlock/redlock.go",
			"if other != n && other.identity() == id {", "if false {", "./redlock", "SameServer",
		},
		{
			"redlock: a node without an identity stays away", "redlock/redlock.go",
			"case errors.Is(asked, errors.ErrUnsupported):", "case false:", "./redlock", "Nameless",
		},
		{
			"redlock: who does not say who it is is never asked again", "redlock/redlock.go",
			"n.fails.CompareAndSwap(0, 1)", "_ = n", "./redlock", "SameServer",
		},
		{
			"etcd: a cluster is known by its cluster id", "etcdbackend/identity.go",
			"strconv.FormatInt(found.GrantedTTL, 10)", "strconv.FormatUint(found.ResponseHeader.ClusterId, 10)", "./redlock", "EtcdListed",
		},
		{
			"etcd: one cluster under two prefixes is two", "etcdbackend/identity.go",
			`return "etcd:" +`, `return b.cfg.Prefix +`, "./redlock", "EtcdListed",
		},
		{
			"tracing: a wrapped node hides which server it is", "tracing/wrap.go",
			"return backend.IdentityOf(ctx, b.Backend)", "return \"\", nil", "./redlock", "SameServer",
		},
	}...)
}
