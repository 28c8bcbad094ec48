package etcdbackend

import "testing"

// covers: X7
func TestOutdated(t *testing.T) {
	for version, want := range map[string]bool{
		"3.3.27": true, "3.4.0": true, "3.4.23": true, "3.4.41": true, "3.4.42": false, "3.4.50": false,
		"3.5.0": true, "3.5.27": true, "3.5.28": false, "3.6.0-rc.1": true, "3.6.8": true, "3.6.9": false, "3.6.10": false,
		"3.7.0": false, "3.10.1": false, "4.0.0": false, "": false, "not decided": false,
	} {
		if got := outdated(version); got != want {
			t.Errorf("outdated(%q) = %v", version, got)
		}
	}
}
