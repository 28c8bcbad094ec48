package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// TLS is what a client needs to reach a server WithTLS.
type TLS struct {
	CAFile   string // PEM of the authority that signed both certificates
	CertFile string // PEM of a client certificate
	KeyFile  string // PEM of its key

	// Config trusts the CA and shows the client certificate. Clone it before changing it.
	Config *tls.Config

	serverCert, serverKey string
}

func (c *TLS) serverArgs(port int) []string {
	return []string{
		"--port", "0", "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "optional",
		"--tls-replication", "yes",
		"--tls-ca-cert-file", c.CAFile, "--tls-cert-file", c.serverCert, "--tls-key-file",
		c.serverKey,
	}
}

// newTLS writes a new authority and two certificates of it, for 127.0.0.1 and for a client, to dir.
func newTLS(dir string) (*TLS, error) {
	c := &TLS{
		CAFile:   filepath.Join(dir, "ca.pem"),
		CertFile: filepath.Join(dir, "client.pem"), KeyFile: filepath.Join(dir, "client-key.pem"),
		serverCert: filepath.Join(dir, "server.pem"), serverKey: filepath.Join(dir,
			"server-key.pem"),
	}
	ca, err := newAuthority(c.CAFile)
	if err != nil {
		return nil, err
	}
	if err := ca.issue("server", c.serverCert, c.serverKey); err != nil {
		return nil, err
	}
	if err := ca.issue("client", c.CertFile, c.KeyFile); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	c.Config = &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12,
	}
	return c, nil
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(file string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("test authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true,
		x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert, key}, writePEM(file, "CERTIFICATE", der)
}

// issue writes a certificate for either end: a replica is its primary's client.
func (a *authority) issue(name, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{
		x509.ExtKeyUsageServerAuth,
		x509.ExtKeyUsageClientAuth,
	}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(keyFile, "EC PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return writePEM(certFile, "CERTIFICATE", der)
}

// certificate is a template that is valid from an hour ago, as clocks of containers differ, for a
// day.
func certificate(name string) *x509.Certificate {
	// Fails only if the system has no randomness, then all else fails.
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
