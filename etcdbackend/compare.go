package etcdbackend

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// absent compares that there is no key, or none from key up to end.
func absent(key, end string) clientv3.Cmp { return createdBefore(key, end, 1) }

// createdBefore compares that all keys from key up to end were created before a revision. What is not there has 0.
func createdBefore(key, end string, revision int64) clientv3.Cmp {
	c, p := compared(key)
	if end != "" {
		p.RangeEnd = []byte(end)
	}
	p.Target, p.Result = pb.Compare_CREATE, pb.Compare_LESS
	p.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: revision}
	return c
}

// same compares that an entry was not deleted since it was seen.
func same(e *entry) clientv3.Cmp {
	c, p := compared(e.key)
	p.Target, p.Result = pb.Compare_CREATE, pb.Compare_EQUAL
	p.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: e.created}
	return c
}

// unwritten compares that a key was last written at a revision.
func unwritten(key string, revision int64) clientv3.Cmp {
	c, p := compared(key)
	p.Target, p.Result = pb.Compare_MOD, pb.Compare_EQUAL
	p.TargetUnion = &pb.Compare_ModRevision{ModRevision: revision}
	return c
}

// compared is made in place. The client's own functions copy a compare, by reflection, in each step.
func compared(key string) (c clientv3.Cmp, p *pb.Compare) {
	c.WithKeyBytes([]byte(key))
	p = c.GetCompare()
	return c, p
}
