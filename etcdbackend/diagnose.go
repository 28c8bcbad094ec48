package etcdbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/backend"
)

// fullAt is the part of the space quota from which it is told of.
const fullAt = 0.8

// Diagnose asks every endpoint for its status, and the cluster for its members, alarms and whether
// it knows users, and by which kind of token, as [backend.Backend] says, bounded by ctx and
// RequestTimeout.
func (b *Backend) Diagnose(ctx context.Context) (all []backend.Finding, err error) {
	err = b.verb(ctx, "diagnose", func(ctx context.Context) error {
		all, err = b.diagnose(ctx)
		return err
	})
	return all, err
}

func (b *Backend) diagnose(ctx context.Context) (all []backend.Finding, err error) {
	find := func(check string, level backend.Level, text, change string) {
		all = append(all, backend.Finding{Check: check, Level: level, Text: text, Change: change})
	}
	members, _, err := resending(ctx, b.resendAfter(),
		func(ctx context.Context) (*clientv3.MemberListResponse, error) {
			return b.client.MemberList(ctx)
		})
	if err != nil {
		return nil, err
	}
	statuses := b.statuses(ctx)
	b.membership(len(members.Members), statuses, find)

	reply, err := b.client.AlarmList(ctx)
	alarms := (*etcdserverpb.AlarmResponse)(reply).GetAlarms()
	for _, a := range alarms {
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			find("space", backend.Fail, "the space quota is used up: nothing is granted or renewed",
				"etcdctl compact and defrag, then etcdctl alarm disarm; raise "+
					"--quota-backend-bytes")
		case etcdserverpb.AlarmType_CORRUPT:
			find("data", backend.Fail, "the data of a member is corrupt",
				"replace that member: etcdctl alarm list names it")
		}
	}
	if len(alarms) == 0 && err == nil {
		b.space(statuses, find)
	}
	if text, change := b.users(ctx, len(members.Members)); change != "" {
		find("auth", backend.Warn, text, change)
	} else if text != "" {
		find("auth", backend.OK, text, "")
	}
	return all, nil
}

// users says whether the cluster knows users, and by which kind of token, and what to change of it;
// nothing where that is not told, as etcd 3.4 does not. It logs our user in once more: the status
// is for root.
func (b *Backend) users(ctx context.Context, members int) (text, change string) {
	const (
		off   = "off: whoever reaches the store may take and free locks"
		known = "users are known, and may do what locks need"
	)
	if b.client.Username == "" {
		switch auth, err := b.client.AuthStatus(ctx); {
		case err == nil && !auth.Enabled:
			return off, ""
		case err == nil, isCode(err, codes.PermissionDenied): // by a certificate
			return known, ""
		}
		return "", ""
	}
	switch login, err := b.client.Authenticate(ctx, b.client.Username, b.client.Password); {
	case err != nil && isOneOf(err, rpctypes.ErrAuthNotEnabled):
		return off, ""
	case err != nil:
		return "", ""
	case strings.Count(login.Token, ".") == 2: // head, claims, signature
		return known + "; tokens are JWTs", ""
	case members == 1:
		return known + "; tokens are simple ones", ""
	}
	return "tokens are simple ones, of which each member has to hear: one that is behind, or was " +
			"restarted, refuses them at first",
		"start the members with --auth-token jwt,… (see etcd's page on authentication)"
}

// statuses asks every endpoint; nil for one that did not answer.
func (b *Backend) statuses(ctx context.Context) []*clientv3.StatusResponse {
	all := make([]*clientv3.StatusResponse, len(b.client.Endpoints()))
	ctx, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout/2)
	defer cancel()
	var asked sync.WaitGroup
	for i, endpoint := range b.client.Endpoints() {
		asked.Go(func() {
			if s, err := b.client.Status(ctx, endpoint); err == nil {
				all[i] = s
			}
		})
	}
	asked.Wait()
	return all
}

func (b *Backend) membership(members int, statuses []*clientv3.StatusResponse,
	find func(string, backend.Level, string, string),
) {
	var versions, silent []string
	leader := false
	for i, s := range statuses {
		switch {
		case s == nil:
			_, host, _ := strings.Cut(b.client.Endpoints()[i], "://")
			silent = append(silent, host)
			continue
		case s.IsLearner:
			find("members", backend.Warn, "an endpoint is a learner, which serves no locks",
				"promote it, or leave it out of the URL")
		}
		leader = leader || s.Leader != 0
		if !slices.Contains(versions, s.Version) {
			versions = append(versions, s.Version)
		}
	}
	slices.Sort(versions)
	switch text := "etcd " + strings.Join(versions, " and "); {
	case slices.ContainsFunc(versions, outdated):
		find("version", backend.Warn,
			text+" lacks fixes: it may answer reads from the past (etcd #20418), or renew a "+
				"lease that was revoked (#20813)",
			"upgrade to 3.4.42, 3.5.28, 3.6.9 or later")
	case len(versions) > 1:
		find("version", backend.Warn, text+": the members differ", "finish the upgrade")
	case len(versions) == 1:
		find("version", backend.OK, text, "")
	}
	named := len(statuses)
	switch {
	case silent != nil:
		find("members", backend.Warn, fmt.Sprintf("%d of %d endpoints do not answer: %s",
			len(silent), named, strings.Join(silent, ", ")),
			"bring them back: one failure more may leave no majority")
	case !leader:
		find("members", backend.Fail, "there is no leader",
			"see that a majority of the members run and reach each other")
	case named < members:
		find("members", backend.Warn,
			fmt.Sprintf("the URL names %d of %d members: while those are down, there are no locks",
				named, members),
			"name all members in the URL")
	case members == 1:
		find("members", backend.Warn,
			"one, which bears no failure: while it is down, nothing is granted or renewed",
			"run three or five members")
	case members%2 == 0:
		find("members", backend.Warn,
			fmt.Sprintf("there are %d members, which bear no more failures than %d", members,
				members-1),
			"add one, or take one away")
	default:
		find("members", backend.OK, fmt.Sprintf("%d, and a leader", members), "")
	}
}

// outdated reports whether a version lacks the fix of etcd #20418, which each minor line got in a
// release of its own.
func outdated(version string) bool {
	var major, minor, patch int
	if n, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 || err != nil ||
		major != 3 {
		return false
	}
	fixed := map[int]int{4: 42, 5: 28, 6: 9}
	return minor < 4 || patch < fixed[minor]
}

func (b *Backend) space(statuses []*clientv3.StatusResponse,
	find func(string, backend.Level, string, string),
) {
	full := 0.0
	for _, s := range statuses {
		if s != nil && s.DbSizeQuota > 0 { // told since etcd 3.6
			full = max(full, float64(s.DbSize)/float64(s.DbSizeQuota))
		}
	}
	if full > fullAt {
		find("space", backend.Warn,
			fmt.Sprintf("%.0f%% of the space quota is used; once it is, nothing is granted",
				full*100),
			"compact and defrag, set --auto-compaction-retention, or raise --quota-backend-bytes")
		return
	}
	find("space", backend.OK, "no alarm", "")
}
