package backend

import "strings"

// Namespaced joins a namespace and a key into one key, so that two different pairs never give the
// same one, an empty namespace included. Ordinary names stay readable: ("shop", "sku-1") is
// "shop~sku-1" and ("", "sku-1") is "sku-1".
//
// It is injective because '~' separates and is escaped elsewhere: no tilde in the result means no
// namespace, else the first tilde ends it. (etcd's concurrency package once let "jobs" wait for
// "jobs/1".)
func Namespaced(namespace, key string) string {
	if namespace == "" {
		return tilde.Replace(key)
	}
	return tilde.Replace(namespace) + "~" + key
}

var tilde = strings.NewReplacer("%", "%25", "~", "%7E")
