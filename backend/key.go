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

// InNamespace undoes [Namespaced]: it returns the key that namespace and it give joined. ok is
// false if joined is not of the namespace.
func InNamespace(namespace, joined string) (key string, ok bool) {
	if namespace != "" {
		joined, ok = strings.CutPrefix(joined, tilde.Replace(namespace)+"~")
		return untilde.Replace(joined), ok
	}
	return untilde.Replace(joined), !strings.Contains(joined, "~")
}

var untilde = strings.NewReplacer("%25", "%", "%7E", "~")
