package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// FuzzConfig loads arbitrary bytes. Whatever they are, there is no panic, an error has its type and
// tells no value of the variable SECRET, and a configuration prints it only where there is no
// secret: in a name, a host or a path.
func FuzzConfig(f *testing.F) {
	for _, tt := range badFiles {
		f.Add([]byte(tt.text))
	}
	for _, text := range []string{
		fullYAML, "backend: redis://u:${SECRET}@h/0?a=${SECRET}#${SECRET}\ntracing: {endpoint: " +
			"'https://u:${SECRET}@h'}\n",
		"backend: ${SECRET}\nttl: ${SECRET}\nwait: {mode: '${SECRET}', max: " +
			"'${SECRET}'}\nrequire: ['${SECRET}']\n",
		"backend: redis://u:${SECRET}/@h\n", "? ${SECRET}\n: ${SECRET}\n",
		"{\"backend\": \"redis:\\/\\/u:${SECRET}@h\"}", "\xfe\xff\x00a",
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), secret) {
			return // keys of the form of one are shown, and such data has it as one sooner or later
		}
		t.Setenv("SECRET", secret)
		path := filepath.Join(dir, "holdfast.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := Load(path)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%T %v", err, err)
			}
			keepsSecrets(t, string(data), err)
			return
		}
		harmless := []string{
			file.Locker.Namespace, file.Locker.Service, file.Backend.String(),
			file.Tracing.Endpoint.String(),
		}
		if strings.Contains(strings.Join(harmless, " "), secret) {
			return
		}
		for _, text := range printings(t, file) {
			if leaks(text) {
				t.Errorf("%q prints as %s", data, text)
			}
		}
	})
}
